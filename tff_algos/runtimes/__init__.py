"""Who runs a round: the loop, three runtimes, stores and checkpoints."""
