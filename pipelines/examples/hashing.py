"""Content hashes of examples, and random numbers from hash and seed."""

import hashlib
from collections.abc import Iterable

import numpy as np

from tff_algos.core import seeds
from tff_algos.core.structures import Array
from tff_algos.data import schema

KEY_BYTES = schema.EXAMPLE_ID_BYTES


def content_key(x: Array) -> bytes:
  """Returns the hash of an example's features, `KEY_BYTES` bytes.

  The label is excluded: the same image with two labels must not be in both a
  training and a test set.
  """
  spelled = (
    f'{x.dtype.str}{x.shape}'.encode() + np.ascontiguousarray(x).tobytes()
  )
  return hashlib.blake2b(spelled, digest_size=KEY_BYTES).digest()


def text_key(text: str) -> bytes:
  """Returns the hash of a name, `KEY_BYTES` bytes."""
  return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def draw(keys: Array, seed: int, purpose: str) -> Array:
  """Returns one pseudorandom number for each key.

  Args:
    keys: `content_key`s, uint8 `[n, KEY_BYTES]`.
    seed: The dataset's seed.
    purpose: Name of the stream; different names give independent numbers.

  Returns:
    uint64 `[n]`, uniform; equal keys get equal numbers.
  """
  keyed = hashlib.blake2b(
    digest_size=8, key=seeds.derive_seed(seed, purpose).tobytes()
  )
  spelled = keys.tobytes()
  numbers = bytearray()  # 8 bytes an example; a list of them would take 50.
  for start in range(0, len(spelled), KEY_BYTES):
    state = keyed.copy()
    state.update(spelled[start : start + KEY_BYTES])
    numbers += state.digest()
  return np.frombuffer(bytes(numbers), '<u8')


def draw_lots(names: Iterable[str], seed: int, purpose: str) -> Array:
  """Returns a hash of each client's name, uint64 `[num_clients]`."""
  keys = np.array([np.frombuffer(text_key(name), np.uint8) for name in names])
  return draw(keys, seed, purpose)


def draw_fraction(keys: Array, seed: int, purpose: str) -> Array:
  """Returns `draw` as float64 in [0, 1]."""
  return draw(keys, seed, purpose) / 2.0**64
