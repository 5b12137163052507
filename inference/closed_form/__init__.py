"""Estimates by eigenvalue problems, one file per model."""
