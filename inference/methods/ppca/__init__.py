"""Hand-written inference for probabilistic PCA and factor analysis."""
