"""Image models: convolutional networks."""
