"""Results: the DataTree of a fit, its groups and its file."""
