"""Server stages: client sampling, server optimizers, robust aggregation."""
