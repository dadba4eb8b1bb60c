"""Train, validation, test and held-out splits by content, group or time.

The role of a raw example is decided once, before the transformations of source
distributions. So a held-out image is held out in every rotation, and a training
image of any client is never a validation or test image. With per-client splits,
the examples that are not held out are partitioned first and split then.
"""

from collections.abc import Iterable

import numpy as np

from pipelines import options
from pipelines.examples import hashing
from pipelines.steps import planning
from tff_algos.core.structures import Array
from tff_algos.data import schema

# Roles 0, 1, 2 are the positions in schema.SPLITS.
HELD_OUT = len(schema.SPLITS)
UNUSED = -1
# Between splits by time, see `options.SplitsConfig.time_gap`.
IN_GAP = -2
# Without a label, of a client that has labels, see
# `options.DatasetConfig.keep_unlabelled`.
NO_LABEL = -3
# Split of a client's share of held-out examples.
TEST = schema.SPLITS.index(schema.TEST)
TRAIN = schema.SPLITS.index(schema.TRAIN)


def assign_roles(
  survey: planning.Survey,
  config: options.SplitsConfig,
  *,
  has_test_split: bool,
  seed: int,
) -> Array:
  """Returns the role of each raw example.

  Args:
    survey: All valid examples.
    config: Fractions and ratios.
    has_test_split: Whether the source has an official test split.
    seed: The dataset's seed.

  Returns:
    int8 `[n]`: position in `schema.SPLITS`, `HELD_OUT`, `UNUSED` for a
    training example whose features (or group, where groups are split; of splits
    by time neither) are in the official test split as well, or `IN_GAP`. With
    per-client splits, 0 for all examples to be partitioned.
  """
  is_given = has_test_split and not config.pool_test_split
  held_out_fraction = 0.0 if is_given else config.held_out_fraction
  kept = 1 - held_out_fraction
  if config.is_by_time:
    shares = [] if config.is_by_client else [*kept * _bounds(config)]
    # Shares are those of labelled examples: the latest often have no label yet.
    has_share = schema.has_label(survey.y) & ~(is_given & survey.is_test)
    rows = np.flatnonzero(has_share)
    time = survey.time[rows]
    at = _divide_in_order(np.zeros(len(time)), time, [*shares, kept], config)
    roles = np.full(len(survey.key), HELD_OUT, np.int8)
    roles[rows] = np.where(at == len(shares) + 1, HELD_OUT, at)
  else:
    key = survey.group if config.split_by == options.GROUP else survey.key
    roles = np.zeros(len(key), np.int8)
    if not config.is_by_client:
      fraction = hashing.draw_fraction(key, seed, 'splits/role')
      roles += np.searchsorted(_bounds(config), fraction, 'right').astype('i1')
    if held_out_fraction:
      held_out = hashing.draw_fraction(key, seed, 'splits/held_out')
      roles[held_out < held_out_fraction] = HELD_OUT
  if is_given:
    if not config.is_by_time:
      by_group = config.split_by == options.GROUP
      divided = survey.group if by_group else survey.key
      roles[_is_tested(divided, survey.is_test)] = UNUSED
    roles[survey.is_test] = HELD_OUT
  return roles


def split_clients(
  owner: Array,
  survey: planning.Survey,
  roles: Array,
  config: options.SplitsConfig,
  seed: int,
) -> Array:
  """Returns roles with per-client splits.

  The examples of a client are shuffled by content hash, or sorted by time; the
  first share is for training and the second for validation, both rounded down,
  the rest for test. Without per-client splits the roles are unchanged.

  Args:
    owner: Client of each raw example, negative for none, `[n]`.
    survey: All valid examples.
    roles: Result of `assign_roles`, `[n]`.
    config: The ratios.
    seed: The dataset's seed.

  Returns:
    int8 `[n]`.
  """
  if not config.is_by_client:
    return roles
  rows = np.flatnonzero((owner >= 0) & (roles == 0))
  split = roles.copy()
  if config.is_by_time:
    split[rows] = _divide_in_order(
      owner[rows], survey.time[rows], _bounds(config), config
    )
    return split
  lot = hashing.draw(survey.key[rows], seed, 'splits/client')
  rows = rows[np.lexsort((lot, owner[rows]))]
  _, start, size = np.unique(owner[rows], return_index=True, return_counts=True)
  rank = np.arange(len(rows)) - np.repeat(start, size)
  for bound in _bounds(config):
    split[rows] += rank >= np.repeat(_count(bound, size), size)
  return split


def _divide_in_order(
  owner: Array,
  time: Array,
  bounds: Iterable[float],
  config: options.SplitsConfig,
) -> Array:
  """Returns the part of each example in its owner's order of time.

  The first examples of an owner are part 0, up to the share of the first bound,
  rounded down. Examples of equal times are in one part, the later one.

  Args:
    owner: `[n]`.
    time: Finite, float64 `[n]`.
    bounds: Cumulative shares of the parts, ascending, at most 1.
    config: Its `time_gap`.

  Returns:
    int8 `[n]`: 0 to the number of bounds, or `IN_GAP`.
  """
  order = np.lexsort((time, owner))
  time = time[order]
  _, start, size = np.unique(
    owner[order], return_index=True, return_counts=True
  )
  part = np.zeros(len(order), np.int8)
  in_gap = np.zeros(len(order), bool)
  for bound in bounds:
    first = _count(bound, size)
    # No example is after a border at infinity.
    border = np.append(time, np.inf)[np.where(first < size, start + first, -1)]
    border = np.repeat(border, size)
    part += time >= border
    in_gap |= (time >= border) & (time < border + config.time_gap)
  part[in_gap] = IN_GAP
  parts = np.empty_like(part)
  parts[order] = part
  return parts


def _is_tested(key: Array, is_test: Array) -> Array:
  """Returns whether each key is one of the official test split's, `[n]`."""
  test_keys = {row.tobytes() for row in key[is_test]}
  return np.array([row.tobytes() in test_keys for row in key], bool)


def _count(share: float, size: Array) -> Array:
  """Returns shares of sizes rounded down: 0.8 * 5 is 4 in spite of rounding."""
  return np.floor(share * size + 1e-9).astype(np.int64)


def _bounds(config: options.SplitsConfig) -> Array:
  """Returns the cumulative shares of training and validation examples."""
  ratios = np.array(config.ratios)
  return np.cumsum(ratios / ratios.sum())[:-1]
