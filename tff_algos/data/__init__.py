"""Reader of federated datasets: schema, integrity checks, client batches."""
