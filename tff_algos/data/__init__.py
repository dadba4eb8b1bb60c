"""The reading side of a federated dataset."""
