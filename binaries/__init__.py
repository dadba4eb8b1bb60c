"""Programs: they parse flags and wire the rooms together."""
