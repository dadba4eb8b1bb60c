"""Training by several processes: TF_CONFIG, peers, collectives."""
