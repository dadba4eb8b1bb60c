"""What can go wrong in a benchmark."""


class BenchmarkError(Exception):
  """A contender failed, or computes something else than the others."""
