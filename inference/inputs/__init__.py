"""Inputs: arrays, counts and batches from tables, texts and chunks."""
