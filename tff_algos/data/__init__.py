"""Reader of federated datasets: schema, integrity, clients' examples."""
