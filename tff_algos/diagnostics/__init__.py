"""Diagnostics of a machine: hardware, network, installed software."""
