"""One program per contender; each runs in a process of its own."""
