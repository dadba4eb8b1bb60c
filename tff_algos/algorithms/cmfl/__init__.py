"""CMFL: a committee of clients replaces the server (Che et al. 2022)."""
