"""Random seeds derived from (seed, purpose, round, client).

No generator object is stored: every random draw derives its seed here, so the
draws of a round depend on no earlier round, on no order of clients and on no
runtime, and resuming needs the round number alone.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from tff_algos.core.structures import Array


def _start(base_seed: int, purpose: str, round_num: int) -> hashlib.blake2b:
  """Returns the hash of all but the client."""
  if base_seed < 0:
    raise ValueError(f'seed must be >= 0, got {base_seed}')
  # The separator is a byte that UTF-8 never produces, so that different tuples
  # are encoded differently.
  fields = (str(int(base_seed)), purpose, str(int(round_num)), '')
  spelled = b'\xff'.join(field.encode() for field in fields)
  return hashlib.blake2b(spelled, digest_size=16)


def derive_seed(
  base_seed: int, purpose: str, round_num: int = 0, client_id: str = ''
) -> Array:
  """Returns the seed of one random draw, for use inside a graph.

  Args:
    base_seed: The run's seed, >= 0.
    purpose: Purpose of the draw, such as `'local_training'`.
    round_num: 1 for the first round; 0 outside rounds.
    client_id: The client's id; empty at the server.

  Returns:
    int32 `[2]`, for TensorFlow's stateless random operations.
  """
  return derive_seeds(base_seed, purpose, round_num, (client_id,))[0]


def derive_seeds(
  base_seed: int, purpose: str, round_num: int, client_ids: Iterable[str]
) -> Array:
  """Returns `derive_seed` of several clients, int32 `[num_clients, 2]`."""
  prefix = _start(base_seed, purpose, round_num)
  digests = []
  for client_id in client_ids:
    spelled = prefix.copy()
    spelled.update(client_id.encode())
    digests.append(spelled.digest())
  words = np.frombuffer(b''.join(digests), '<i4').reshape(-1, 4)
  return words[:, :2].astype(np.int32)


def numpy_generator(
  base_seed: int, purpose: str, round_num: int = 0, client_id: str = ''
) -> np.random.Generator:
  """Returns a new NumPy generator for one random draw on the host."""
  spelled = _start(base_seed, purpose, round_num)
  spelled.update(client_id.encode())
  digest = spelled.digest()
  return np.random.Generator(
    np.random.Philox(key=np.frombuffer(digest, dtype='<u8'))
  )
