"""Hand-written inference for kernel PCA."""
