"""Mixture vectors, client sizes, and how many examples of which kind each.

FedSoft (arXiv 2112.06053), section "Experiments": partitions 10:90, 30:70,
linear and random; n_ks is the largest-remainder rounding of u_ks * n_k.
"""

import numpy as np

from pipelines import options
from tff_algos.core import errors, seeds


def build_mixtures(
  config: options.PartitionConfig,
  num_clients: int,
  num_sources: int,
  generator: np.random.Generator,
) -> np.ndarray:
  """Returns the share of each source distribution at each client.

  Args:
    config: Whose `law` is used.
    num_clients: Number of rows, N.
    num_sources: Number of columns, S.
    generator: Randomness of law `'random'`.

  Returns:
    float64 `[num_clients, num_sources]`, rows sum to 1.

  Raises:
    ConfigError: If the law is for another number of distributions.
  """
  if config.law == options.RANDOM:
    return random_mixtures(num_clients, num_sources, generator)
  if config.law == options.IID:
    return np.full((num_clients, num_sources), 1 / num_sources)
  if num_sources != 2:
    raise errors.ConfigError(
      f'partition.law {config.law!r} mixes exactly 2 source distributions, '
      f'there are {num_sources}; use {options.RANDOM!r} or {options.IID!r}'
    )
  if config.law == options.LINEAR:
    share = (np.arange(num_clients) + 0.5) / num_clients
  else:
    first, second = config.shares
    in_first_half = np.arange(num_clients) < (num_clients + 1) // 2
    share = np.where(in_first_half, first, second)
  return np.stack([share, 1 - share], axis=1)


def random_mixtures(
  num_clients: int, num_sources: int, generator: np.random.Generator
) -> np.ndarray:
  """Returns lengths of the pieces of [0, 1] cut at S - 1 uniform points.

  The rows are uniform on the simplex, Dirichlet(1, ..., 1).
  """
  cuts = np.sort(generator.random((num_clients, num_sources - 1)), axis=1)
  return np.diff(cuts, axis=1, prepend=0.0, append=1.0)


def draw_sizes(
  config: options.SizesConfig, num_clients: int, generator: np.random.Generator
) -> np.ndarray:
  """Returns training sizes n_k by law `'uniform'`, int64 `[num_clients]`."""
  return generator.integers(
    config.minimum, config.maximum, size=num_clients, endpoint=True
  )


def split_sizes(sizes: np.ndarray, config: options.SplitsConfig) -> np.ndarray:
  """Returns sizes of train, validation and test, int64 `[3, num_clients]`.

  Args:
    sizes: Training sizes, `[num_clients]`.
    config: The ratios; results are rounded to nearest, halves up.
  """
  ratios = np.array([1.0, config.validation_ratio, config.test_ratio])
  return np.floor(ratios[:, None] * sizes + 0.5).astype(np.int64)


def largest_remainder(mixtures: np.ndarray, sizes: np.ndarray) -> np.ndarray:
  """Returns whole numbers near `mixtures * sizes` with the right row sums.

  Each row gets the floors first; what is left goes one by one to the largest
  remainders, to the lower index among equal ones.

  Args:
    mixtures: Rows that sum to 1, float64 `[num_clients, num_sources]`.
    sizes: int64 `[num_clients]`.

  Returns:
    int64 `[num_clients, num_sources]`; each entry is less than 1 away.
  """
  wanted = mixtures * sizes[:, None]
  # 0.9 * 10 is 9.000000000000002 and 0.29 * 100 is 28.999999999999996: what
  # differs from a whole number by rounding errors alone is that number.
  nearest = np.rint(wanted)
  wanted = np.where(np.abs(wanted - nearest) < 1e-9, nearest, wanted)
  counts = np.floor(wanted).astype(np.int64)
  left = sizes - counts.sum(axis=1)
  order = np.argsort(counts - wanted, axis=1, kind='stable')
  rank = np.argsort(order, axis=1, kind='stable')
  return counts + (rank < left[:, None])


def count_quotas(
  mixtures: np.ndarray, sizes: np.ndarray, config: options.SplitsConfig
) -> np.ndarray:
  """Returns how many examples of each kind each client gets.

  Returns:
    int64 `[3, num_clients, num_sources]`, by split.
  """
  return np.stack(
    [largest_remainder(mixtures, split) for split in split_sizes(sizes, config)]
  )


def largest_equal_size(
  mixtures: np.ndarray, available: np.ndarray, config: options.SplitsConfig
) -> int:
  """Returns the largest training size that the pools can give to all clients.

  Args:
    mixtures: `[num_clients, num_sources]`.
    available: Examples in each pool, int64 `[3, num_sources]`, by split.
    config: The splits' ratios.
  """
  num_clients = len(mixtures)
  low, high = 0, int(available[0].sum()) // num_clients + 1
  while high - low > 1:  # low fits; high does not
    middle = (low + high) // 2
    sizes = np.full(num_clients, middle)
    wanted = count_quotas(mixtures, sizes, config).sum(axis=1)
    low, high = (middle, high) if np.all(wanted <= available) else (low, middle)
  return low


def check_available(
  wanted: np.ndarray,
  available: np.ndarray,
  source_names: tuple[str, ...],
  splits: tuple[str, ...],
) -> None:
  """Raises PartitionError if a pool has fewer examples than are wanted.

  Args:
    wanted: `[num_splits, num_sources]`.
    available: The same shape.
    source_names: Names of the source distributions.
    splits: Names of the splits.
  """
  for s, split in enumerate(splits):
    for d, name in enumerate(source_names):
      if wanted[s, d] > available[s, d]:
        raise errors.PartitionError(
          f'the partition wants {wanted[s, d]} {split} examples of source '
          f'distribution {name!r} and only {available[s, d]} exist. Lower '
          'sizes.maximum, partition.num_clients, partition.num_unseen_clients, '
          f'or the ratio of {split} in splits; or use more raw examples.'
        )


def partition_generator(seed: int, group: str, what: str):
  """Returns the randomness of one group's mixtures or sizes."""
  return seeds.numpy_generator(seed, f'partition/{group}/{what}')
