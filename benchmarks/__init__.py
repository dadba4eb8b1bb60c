"""How fast, and against whom: `make bench`."""
