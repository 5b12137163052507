"""Documents as bags of words: data, densities and shares of topics."""
