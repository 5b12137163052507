"""Epca."""
