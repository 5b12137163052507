"""Hand-written inference for the probabilistic clustering-projection model."""
