"""Runtimes: vectorized, TFF and debug, behind one interface."""
