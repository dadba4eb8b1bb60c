"""Train, validation, test and held-out splits by content hash.

The role of a raw example is decided once, before the transformations of source
distributions. So a held-out image is held out in every rotation, and a training
image of any client is never a validation or test image. With per-client splits,
the examples that are not held out are partitioned first and split then.
"""

import numpy as np

from pipelines import options
from pipelines.examples import hashing
from tff_algos.core.structures import Array
from tff_algos.data import schema

# Roles 0, 1, 2 are the positions in schema.SPLITS.
HELD_OUT = len(schema.SPLITS)
UNUSED = -1
# Split of a client's share of held-out examples.
TEST = schema.SPLITS.index(schema.TEST)


def assign_roles(
  key: Array,
  is_test: Array,
  config: options.SplitsConfig,
  *,
  has_test_split: bool,
  seed: int,
) -> Array:
  """Returns the role of each raw example.

  Args:
    key: Content keys, uint8 `[n, KEY_BYTES]`.
    is_test: Whether it is in the official test split, bool `[n]`.
    config: Fractions and ratios.
    has_test_split: Whether the source has an official test split.
    seed: The dataset's seed.

  Returns:
    int8 `[n]`: position in `schema.SPLITS`, `HELD_OUT`, or `UNUSED` for a
    training example whose features are in the official test split as well.
    With per-client splits, 0 for all examples to be partitioned.
  """
  if config.split_by == options.CLIENT:
    roles = np.zeros(len(key), np.int8)
  else:
    fraction = hashing.draw_fraction(key, seed, 'splits/role')
    roles = np.searchsorted(_bounds(config), fraction, side='right')
    roles = roles.astype(np.int8)
  if has_test_split and not config.pool_test_split:
    test_keys = {row.tobytes() for row in key[is_test]}
    is_copy = np.array([row.tobytes() in test_keys for row in key], bool)
    roles[is_copy] = UNUSED
    roles[is_test] = HELD_OUT
  else:
    held_out = hashing.draw_fraction(key, seed, 'splits/held_out')
    roles[held_out < config.held_out_fraction] = HELD_OUT
  return roles


def split_clients(
  owner: Array,
  key: Array,
  roles: Array,
  config: options.SplitsConfig,
  seed: int,
) -> Array:
  """Returns roles with per-client splits.

  The examples of a client are shuffled by content hash; the first share is for
  training and the second for validation, both rounded down, the rest for test.
  With `split_by='content'` the roles are unchanged.

  Args:
    owner: Client of each raw example, negative for none, `[n]`.
    key: Content keys, uint8 `[n, KEY_BYTES]`.
    roles: Result of `assign_roles`, `[n]`.
    config: The ratios.
    seed: The dataset's seed.

  Returns:
    int8 `[n]`.
  """
  if config.split_by == options.CONTENT:
    return roles
  rows = np.flatnonzero((owner >= 0) & (roles == 0))
  lot = hashing.draw(key[rows], seed, 'splits/client')
  rows = rows[np.lexsort((lot, owner[rows]))]
  _, start, size = np.unique(owner[rows], return_index=True, return_counts=True)
  rank = np.arange(len(rows)) - np.repeat(start, size)
  split = roles.copy()
  split[rows] = 0
  for bound in _bounds(config):
    # 0.8 * 5 must be 4 in spite of rounding.
    split[rows] += rank >= np.repeat(np.floor(bound * size + 1e-9), size)
  return split


def _bounds(config: options.SplitsConfig) -> Array:
  """Returns the cumulative shares of training and validation examples."""
  ratios = np.array([1.0, config.validation_ratio, config.test_ratio])
  return np.cumsum(ratios / ratios.sum())[:-1]
