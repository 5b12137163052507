"""Supports of sites: the real coordinates in which NUTS, HMC, SVI and MAP move."""
