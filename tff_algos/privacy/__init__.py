"""User-level differential privacy, as a wrapper around an algorithm."""
