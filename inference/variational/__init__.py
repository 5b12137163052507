"""Variational methods, one file per model, under the model's name in ``zoo``."""
