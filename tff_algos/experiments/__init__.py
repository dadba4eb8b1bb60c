"""Experiments: from a config to data, training, evaluation, export."""
