"""Shares become whole numbers, and pools of examples are dealt by them."""

import numpy as np

from tff_algos.core.structures import Array

NOBODY = -1
# What differs from a whole number by less is that number: 0.9 * 10 is
# 9.000000000000002 and 0.29 * 100 is 28.999999999999996.
_ROUNDING = 1e-9


def largest_remainder(mixtures: Array, sizes: Array) -> Array:
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
  nearest = np.rint(wanted)
  wanted = np.where(np.abs(wanted - nearest) < _ROUNDING, nearest, wanted)
  counts = np.floor(wanted).astype(np.int64)
  left = sizes - counts.sum(axis=1)
  order = np.argsort(counts - wanted, axis=1, kind='stable')
  rank = np.argsort(order, axis=1, kind='stable')
  return counts + (rank < left[:, None])


def apportion(shares: Array, available: Array) -> Array:
  """Returns how many examples of each pool each client gets.

  Largest remainders within each pool; what is nobody's share stays there.

  Args:
    shares: Share of each pool that each client gets, float64
      `[num_clients, num_pools]`; columns sum to 1 at most.
    available: Examples in each pool, int64 `[num_pools]`.

  Returns:
    int64 `[num_clients, num_pools]`; each entry is less than 1 away.
  """
  nobody = 1 - shares.sum(axis=0)
  nobody[nobody < _ROUNDING] = 0.0
  everyone = np.concatenate([shares, nobody[None]]).T
  return largest_remainder(everyone, available)[:, :-1].T


def deal(pool: Array, lot: Array, quotas: Array) -> Array:
  """Deals each pool, shuffled by its examples' lots, to the clients in turn.

  Args:
    pool: The pool that each example lies in, `NOBODY` for none, int64 `[n]`.
    lot: A hash of each example, uint64 `[n]`.
    quotas: How many each client gets, int64 `[num_pools, num_clients]`; no
      more in a pool than there are.

  Returns:
    The client that gets each example, `NOBODY` if none, int32 `[n]`.
  """
  owners = np.full(len(pool), NOBODY, np.int32)
  shuffled = np.lexsort((lot, pool))
  starts = np.searchsorted(pool[shuffled], np.arange(len(quotas)))
  for start, quota in zip(starts, quotas, strict=True):
    dealt = np.repeat(np.arange(len(quota)), quota)
    owners[shuffled[start : start + len(dealt)]] = dealt
  return owners
