"""Inputs: arrays, counts and batches from tables, texts, chunks and files."""
