"""Functional models: the weights are arguments, so they stack."""
