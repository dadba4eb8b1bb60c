"""Runtime `pjrt`: phases lowered to HLO, run by a worker process with jax."""
