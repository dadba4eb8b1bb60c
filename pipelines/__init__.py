"""Apache Beam pipelines: versioned federated datasets and batch inference."""
