"""Depcam."""
