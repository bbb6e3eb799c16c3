"""Expectations of log-densities under normal predictors, in numpy."""
