"""Segmented gossip: averaging without a server (Hu et al. 2019)."""
