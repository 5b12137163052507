"""Hand-written inference for mixtures."""
