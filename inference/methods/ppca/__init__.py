"""Ppca."""
