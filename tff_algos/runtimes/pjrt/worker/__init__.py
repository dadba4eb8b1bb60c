"""The worker process of the runtime `pjrt`: needs NumPy and jax alone."""
