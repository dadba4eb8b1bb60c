"""Pure tensor mathematics, independent of clients and federated learning."""
