"""Typed building blocks of a round, and the composer that joins them."""
