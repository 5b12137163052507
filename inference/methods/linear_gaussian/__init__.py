"""EM and variational Bayes for linear-Gaussian models, shared by PPCA, factor analysis and SPPCA."""
