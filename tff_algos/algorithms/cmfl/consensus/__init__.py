"""Committee consensus: a Byzantine fault-tolerant voting protocol."""
