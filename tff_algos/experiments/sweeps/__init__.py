"""Sweeps: grids of experiments and their runs."""
