"""Clustered and personalized federated learning on TensorFlow Federated."""
