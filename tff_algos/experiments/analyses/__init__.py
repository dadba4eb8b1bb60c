"""Analyses of runs: theorem bounds, factors, loss landscapes."""
