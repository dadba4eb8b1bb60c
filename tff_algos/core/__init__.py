"""Contracts and types: what everything in this library is."""
