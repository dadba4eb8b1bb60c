"""Pure tensor mathematics; nothing here knows what a client is."""
