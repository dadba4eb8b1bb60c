"""Functional models: weights are arguments, so that they can be stacked."""
