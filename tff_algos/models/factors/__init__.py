"""Factored models: decomposed convolutions, low-rank kernels."""
