"""Fitting: from a call of `fit` to a finished run."""
