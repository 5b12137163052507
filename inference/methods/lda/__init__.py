"""Hand-written inference for latent Dirichlet allocation."""
