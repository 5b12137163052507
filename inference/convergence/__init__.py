"""Convergence: invariants of a fit, and whether chains agree on them."""
