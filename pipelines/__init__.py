"""Apache Beam pipelines: raw data becomes a versioned federated dataset."""
