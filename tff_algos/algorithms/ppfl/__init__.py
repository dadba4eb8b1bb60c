"""PPFL: canonical models and membership vectors (Di et al. 2023)."""
