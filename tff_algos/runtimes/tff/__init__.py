"""TFF runtime: federated computations on TFF's C++ worker."""
