"""Results with intervals from a weighted sample, for every family."""
