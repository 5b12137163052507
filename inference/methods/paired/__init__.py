"""Hand-written inference for paired views."""
