"""Quotas: number of examples per client, split and distribution."""

from collections.abc import Callable

import numpy as np

from pipelines import options
from pipelines.partitions import apportion
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import schema


def split_sizes(sizes: Array, config: options.SplitsConfig) -> Array:
  """Returns sizes of train, validation and test, int64 `[3, num_clients]`.

  Args:
    sizes: Training sizes, or sizes of all examples with per-client splits,
      `[num_clients]`.
    config: The ratios; results are rounded to nearest, halves up.
  """
  ratios = (1.0, 0.0, 0.0) if config.is_by_client else config.ratios
  return np.floor(np.outer(ratios, sizes) + 0.5).astype(np.int64)


def count_quotas(
  mixtures: Array, sizes: Array, config: options.SplitsConfig
) -> Array:
  """Returns the number of examples per split, client and distribution.

  Returns:
    int64 `[3, num_clients, num_sources]`, by split.
  """
  return np.stack(
    [
      apportion.largest_remainder(mixtures, split)
      for split in split_sizes(sizes, config)
    ]
  )


def largest_sizes(
  make_sizes: Callable[[int], Array],
  most: int,
  mixtures: Array,
  available: Array,
  config: options.SplitsConfig,
) -> Array:
  """Returns the largest sizes of a family that the pools can provide.

  Args:
    make_sizes: Number -> sizes, int64 `[num_clients]`; monotone, and zeros for
      0.
    most: Largest number to try.
    mixtures: `[num_clients, num_sources]`.
    available: Examples in each pool, int64 `[3, num_sources]`, by split.
    config: The splits' ratios.

  Raises:
    PartitionError: If a client trains, but a split with a ratio above 0 has no
      example at any client.
  """
  low, high = 0, most + 1
  while high - low > 1:  # Invariant of the bisection: low fits, high does not.
    middle = (low + high) // 2
    wanted = count_quotas(mixtures, make_sizes(middle), config).sum(axis=1)
    low, high = (middle, high) if np.all(wanted <= available) else (low, middle)
  sizes = make_sizes(low)
  if config.is_by_client or not sizes.any():
    return sizes
  counts = split_sizes(sizes, config).sum(axis=1)
  for s, split in enumerate(schema.SPLITS):
    if config.ratios[s] and not counts[s]:
      raise errors.PartitionError(
        f'splits.{split}_ratio is {config.ratios[s]}, but the largest sizes '
        f'that {available[0].sum()} training and {available[s].sum()} {split} '
        f'examples allow leave no {split} example to any of {len(sizes)} '
        'clients. Lower partition.num_clients, set the ratio to 0, or use more '
        'raw examples.'
      )
  return sizes


def check_available(
  wanted: Array, available: Array, source_names: tuple[str, ...]
) -> None:
  """Raises PartitionError if a pool has fewer examples than the quotas.

  Args:
    wanted: `[3, num_sources]`, by split.
    available: The same shape.
    source_names: Names of the source distributions.
  """
  for s, split in enumerate(schema.SPLITS):
    for d, name in enumerate(source_names):
      if wanted[s, d] > available[s, d]:
        raise errors.PartitionError(
          f'the partition wants {wanted[s, d]} {split} examples of source '
          f'distribution {name!r} and only {available[s, d]} exist. Lower '
          'sizes.maximum, partition.num_clients, partition.num_unseen_clients, '
          f'or the ratio of {split} in splits; or use more raw examples.'
        )
