"""Which examples train, validate, test or are held out: by content hash.

The decision is made once for a raw example, before it is shown by any source
distribution. So an image that is held out is held out in every rotation, and
one that trains at a client validates or tests nowhere.
"""

import numpy as np

from pipelines import hashing, options
from tff_algos.data import schema

# Roles 0, 1, 2 are the positions in schema.SPLITS.
HELD_OUT = len(schema.SPLITS)
UNUSED = -1


def assign_roles(
  key: np.ndarray,
  is_test: np.ndarray,
  config: options.SplitsConfig,
  *,
  has_test_split: bool,
  seed: int,
) -> np.ndarray:
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
  """
  ratios = np.array([1.0, config.validation_ratio, config.test_ratio])
  bounds = np.cumsum(ratios / ratios.sum())[:-1]
  fraction = hashing.draw_fraction(key, seed, 'splits/role')
  roles = np.searchsorted(bounds, fraction, side='right').astype(np.int8)
  if has_test_split:
    test_keys = {row.tobytes() for row in key[is_test]}
    is_copy = np.array([row.tobytes() in test_keys for row in key], bool)
    roles[is_copy] = UNUSED
    roles[is_test] = HELD_OUT
  else:
    held_out = hashing.draw_fraction(key, seed, 'splits/held_out')
    roles[held_out < config.held_out_fraction] = HELD_OUT
  return roles
