"""Sppca."""
