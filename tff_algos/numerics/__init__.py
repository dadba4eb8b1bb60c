"""Tensor mathematics, independent of federated rounds."""
