"""Fits of GAMs by sums over (binned) rows."""
