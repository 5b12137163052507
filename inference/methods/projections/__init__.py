"""Inference for exponential-family projections, shared by EPCA and paired views."""
