"""Apportionment of pools of examples to clients (largest remainders)."""

import numpy as np

from tff_algos.core.structures import Array

NOBODY = -1
# Numbers closer than this to an integer are rounded to it: 0.9 * 10 is
# 9.000000000000002 and 0.29 * 100 is 28.999999999999996.
_ROUNDING = 1e-9


def largest_remainder(mixtures: Array, sizes: Array) -> Array:
  """Returns `mixtures * sizes` rounded to integers with exact row sums.

  Each row gets the floors first; the rest goes one by one to the largest
  remainders, to the lower index on ties.

  Args:
    mixtures: Rows that sum to 1, float64 `[num_clients, num_sources]`.
    sizes: int64 `[num_clients]`.

  Returns:
    int64 `[num_clients, num_sources]`; rounding errors are below 1.
  """
  wanted = mixtures * sizes[:, None]
  nearest = np.rint(wanted)
  wanted = np.where(np.abs(wanted - nearest) < _ROUNDING, nearest, wanted)
  counts = np.floor(wanted).astype(np.int64)
  left = sizes - counts.sum(axis=1)
  order = np.argsort(counts - wanted, axis=1, kind='stable')
  rank = np.argsort(order, axis=1, kind='stable')
  return counts + (rank < left[:, None])


def apportion(shares: Array, available: Array) -> Array:
  """Returns the number of examples of each pool for each client.

  Largest remainders within each pool; unassigned shares remain in the pool.

  Args:
    shares: Share of each pool for each client, float64
      `[num_clients, num_pools]`; columns sum to 1 at most.
    available: Examples in each pool, int64 `[num_pools]`.

  Returns:
    int64 `[num_clients, num_pools]`; rounding errors are below 1.
  """
  nobody = 1 - shares.sum(axis=0)
  nobody[nobody < _ROUNDING] = 0.0
  everyone = np.concatenate([shares, nobody[None]]).T
  return largest_remainder(everyone, available)[:, :-1].T


def deal(pool: Array, lot: Array, quotas: Array) -> Array:
  """Assigns each pool, shuffled by `lot`, to the clients in order.

  Args:
    pool: Pool of each example, `NOBODY` for none, int64 `[n]`.
    lot: Hash of each example, uint64 `[n]`.
    quotas: Examples of each pool for each client, int64 `[num_pools,
      num_clients]`; no more than the pool has.

  Returns:
    Client of each example, `NOBODY` if none, int32 `[n]`.
  """
  owners = np.full(len(pool), NOBODY, np.int32)
  shuffled = np.lexsort((lot, pool))
  starts = np.searchsorted(pool[shuffled], np.arange(len(quotas)))
  for start, quota in zip(starts, quotas, strict=True):
    dealt = np.repeat(np.arange(len(quota)), quota)
    owners[shuffled[start : start + len(dealt)]] = dealt
  return owners
