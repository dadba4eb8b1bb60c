"""Randomness as a function of (seed, purpose, round, client).

No generator object is stored anywhere: whoever needs randomness derives it
here, so the result of a round depends on no earlier round, on no order of
clients and on no runtime, and resuming needs nothing but the round number.
"""

import hashlib

import numpy as np


def _digest(
  base_seed: int, purpose: str, round_num: int, client_id: str
) -> bytes:
  if base_seed < 0:
    raise ValueError(f'seed must be >= 0, got {base_seed}')
  # The fields are parted by a byte that UTF-8 never produces, so that no two
  # different tuples are spelled alike.
  spelled = b'\xff'.join(
    (
      str(int(base_seed)).encode(),
      purpose.encode(),
      str(int(round_num)).encode(),
      client_id.encode(),
    )
  )
  return hashlib.blake2b(spelled, digest_size=16).digest()


def derive_seed(
  base_seed: int, purpose: str, round_num: int = 0, client_id: str = ''
) -> np.ndarray:
  """Returns the seed of one use of randomness, for use inside a graph.

  Args:
    base_seed: The run's seed, >= 0.
    purpose: What the randomness is for, such as `'local_training'`.
    round_num: 1 for the first round; 0 outside rounds.
    client_id: The client's id; empty at the server.

  Returns:
    int32 `[2]`, as TensorFlow's stateless operations want it.
  """
  digest = _digest(base_seed, purpose, round_num, client_id)
  return np.frombuffer(digest[:8], dtype='<i4').astype(np.int32)


def numpy_generator(
  base_seed: int, purpose: str, round_num: int = 0, client_id: str = ''
) -> np.random.Generator:
  """Returns a fresh NumPy generator for one use of randomness on the host."""
  digest = _digest(base_seed, purpose, round_num, client_id)
  return np.random.Generator(
    np.random.Philox(key=np.frombuffer(digest, dtype='<u8'))
  )
