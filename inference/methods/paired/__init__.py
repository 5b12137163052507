"""Paired."""
