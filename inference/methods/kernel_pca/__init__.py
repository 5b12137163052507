"""Kernel pca."""
