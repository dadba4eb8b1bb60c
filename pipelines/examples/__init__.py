"""Decisions about examples: cleaning, hashing, splits, distributions."""
