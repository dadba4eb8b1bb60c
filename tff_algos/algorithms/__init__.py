"""Algorithms: one file a paper, or one package with its theory."""
