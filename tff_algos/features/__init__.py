"""Feature specs: from raw columns to the input of a model."""
