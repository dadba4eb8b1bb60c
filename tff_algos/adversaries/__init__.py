"""Byzantine clients: attacks on updates and on labels."""
