"""Training: the round loop, checkpoints, client states, metrics log."""
