"""Hand-written inference for supervised and semi-supervised probabilistic PCA."""
