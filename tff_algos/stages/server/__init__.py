"""Server stages: the global model, client sampling, robust aggregation."""
