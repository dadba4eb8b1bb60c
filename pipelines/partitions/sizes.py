"""Distributions of the number of examples per client (quantity skew)."""

import numpy as np

from pipelines import options
from pipelines.partitions import apportion, quotas
from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array

# Maximum number of Dirichlet draws, repeated while a client is too small.
_MAX_DRAWS = 100


def choose_sizes(
  config: options.SizesConfig,
  splits: options.SplitsConfig,
  mixtures: Array,
  available: Array,
  *,
  groups: dict[str, int],
  seed: int,
) -> Array:
  """Returns the training size n_k of each client, int64 `[num_clients]`.

  Args:
    config: Distribution of sizes.
    splits: Ratios of the splits.
    mixtures: `[num_clients, num_sources]`.
    available: Examples in each pool, int64 `[3, num_sources]`, by split.
    groups: Number of clients in each group, in their order.
    seed: The dataset's seed.

  Raises:
    PartitionError: If no draw gives every client `minimum` examples, or equal
      sizes are 0.
  """
  if config.law == options.EQUAL:
    return _choose_equal(splits, mixtures, available)
  if config.law == options.DIRICHLET:
    return _draw_dirichlet(config, splits, mixtures, available, seed)
  return np.concatenate(
    [
      draw_sizes(config, count, _generator(seed, group))
      for group, count in groups.items()
    ]
  )


def draw_sizes(
  config: options.SizesConfig, num_clients: int, generator: np.random.Generator
) -> Array:
  """Returns independently drawn sizes, int64 `[num_clients]`.

  Args:
    config: Law `'uniform'`, `'power_law'` (density n^-exponent between the
      bounds, by the inverse of its distribution) or `'lognormal'` (as in
      FedProx, arXiv 1812.06127, and the data sets made after it).
    num_clients: Number of clients.
    generator: Random generator.
  """
  low = checks.check_given('minimum', config.minimum)
  high = config.maximum
  if config.law == options.UNIFORM:
    return generator.integers(
      low,
      checks.check_given('maximum', high),
      size=num_clients,
      endpoint=True,
    )
  if config.law == options.LOGNORMAL:
    draws = generator.lognormal(
      checks.check_given('log_mean', config.log_mean),
      checks.check_given('log_deviation', config.log_deviation),
      num_clients,
    )
    # Clipped before the conversion, since e^50 overflows an integer.
    most = 2.0**53 if high is None else high - low
    return low + np.minimum(np.floor(draws), most).astype(np.int64)
  uniform = generator.random(num_clients)
  ratio = (checks.check_given('maximum', high) + 1.0) / low
  power = 1.0 - checks.check_given('exponent', config.exponent)
  if abs(power) < 1e-9:  # The limit of the formula below.
    draws = low * ratio**uniform
  else:
    # Relative to the least size, whose own power may be too small for a float.
    draws = low * (1 + uniform * (ratio**power - 1)) ** (1 / power)
  return np.clip(np.floor(draws), low, high).astype(np.int64)


def _choose_equal(
  splits: options.SplitsConfig, mixtures: Array, available: Array
) -> Array:
  """Returns the largest equal sizes."""
  num_clients = len(mixtures)
  sizes = quotas.largest_sizes(
    lambda size: np.full(num_clients, size),
    int(available[0].sum()) // num_clients,
    mixtures,
    available,
    splits,
  )
  if not sizes.any():
    raise errors.PartitionError(
      f'sizes.law {options.EQUAL!r} leaves no example for each of '
      f'{num_clients} clients: there are {available[0].tolist()} training '
      'examples of the source distributions. Lower partition.num_clients or '
      'partition.num_unseen_clients, or use more raw examples.'
    )
  return sizes


def _draw_dirichlet(
  config: options.SizesConfig,
  splits: options.SplitsConfig,
  mixtures: Array,
  available: Array,
  seed: int,
) -> Array:
  """Returns the largest sizes proportional to one Dirichlet draw."""
  generator = _generator(seed, 'everyone')
  minimum, smallest = config.minimum or 0, -1
  total = int(available[0].sum())
  if minimum * len(mixtures) > total:
    raise errors.PartitionError(
      f'sizes.minimum is {minimum} for each of {len(mixtures)} clients and '
      f'there are only {total} examples; lower it, or the number '
      'of clients.'
    )
  for _ in range(_MAX_DRAWS):
    shares = generator.dirichlet(np.full(len(mixtures), config.concentration))
    sizes = quotas.largest_sizes(
      lambda number, shares=shares: apportion.largest_remainder(
        shares[None], np.array([number])
      )[0],
      total,
      mixtures,
      available,
      splits,
    )
    if sizes.min() >= minimum:
      return sizes
    smallest = max(smallest, int(sizes.min()))
  raise errors.PartitionError(
    f'in {_MAX_DRAWS} draws sizes.law {config.law!r} never gave every client '
    f'sizes.minimum {minimum} examples: the smallest client had {smallest} at '
    'best. Raise sizes.concentration, or lower sizes.minimum or the number of '
    'clients.'
  )


def _generator(seed: int, group: str) -> np.random.Generator:
  return seeds.numpy_generator(seed, f'partition/{group}/sizes')
