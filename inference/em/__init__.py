"""Expectation maximisation, one file per model."""
