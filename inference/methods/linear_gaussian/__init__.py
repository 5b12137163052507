"""Linear gaussian."""
