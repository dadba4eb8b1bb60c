"""Vectorized runtime: client work as one TensorFlow graph."""
