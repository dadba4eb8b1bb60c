"""Versions of a dataset: staging, manifest, publishing, retention."""
