"""Batch inference: a federated dataset scored with exported models."""
