"""Beam steps of a dataset build: survey, plan, pieces, files."""
