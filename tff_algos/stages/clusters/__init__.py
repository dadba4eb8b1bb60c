"""Cluster stages: assignment, initialization, mixtures of models."""
