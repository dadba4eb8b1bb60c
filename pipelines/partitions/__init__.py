"""Partitions of examples among clients; docs/partitions.md lists them."""
