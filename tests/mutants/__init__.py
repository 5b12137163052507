"""Planted mistakes: does a test notice? ``python -m tests.mutants`` plants them in a copy, one at a time."""
