"""Cases packed into single files, to be measured wherever jax is."""
