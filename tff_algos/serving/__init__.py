"""A small server that speaks TensorFlow Serving's REST and gRPC APIs."""
