"""Plsi."""
