"""Planted mistakes: does a test notice? ``python -m tests.tools.mutants`` plants them, one by one."""
