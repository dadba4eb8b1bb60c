"""The laws by which clients get examples; docs/partitions.md lists them."""
