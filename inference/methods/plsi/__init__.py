"""Hand-written inference for probabilistic latent semantic indexing."""
