"""CFL: recursive bipartitioning of clients (Sattler et al. 2020)."""
