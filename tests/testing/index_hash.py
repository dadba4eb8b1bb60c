"""A second implementation of the hash of `numerics.index_random`.

Python's integers have no width, so nothing here can overflow by accident.
"""

from collections.abc import Iterator

_MASK = 0xFFFFFFFF


def _mix(bits: int) -> int:
  for shift, multiplier in (
    (16, 0x7FEB352D),
    (15, 0x31848BAB),
    (17, 0x2C1B3C6D),
  ):
    bits = ((bits ^ (bits >> shift)) * multiplier) & _MASK
  return bits ^ (bits >> 16)


def random_bits(seed, *counters: int) -> int:
  """Returns the 32 bits of one combination of counters."""
  first, second = (int(word) & _MASK for word in seed)
  bits = _mix(_mix(first) ^ second)
  for counter in counters:
    bits = _mix(bits ^ ((counter * 0x1E3779B1 + 0x5BF03635) & _MASK))
  return bits


def shuffled(seed, epoch: int, num_rows: int) -> list[int]:
  """Returns the order of `num_rows` rows in an epoch."""
  return sorted(range(num_rows), key=lambda row: random_bits(seed, epoch, row))


def batches(
  seed, num_epochs: int, num_rows: int, batch_size: int
) -> Iterator[list[int]]:
  """Yields the rows of each mini-batch; the last of an epoch may be short."""
  for epoch in range(num_epochs):
    order = shuffled(seed, epoch, num_rows)
    for begin in range(0, num_rows, batch_size):
      yield order[begin : begin + batch_size]
