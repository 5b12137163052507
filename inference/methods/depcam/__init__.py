"""Hand-written inference for repulsive mixtures of PCAs."""
