"""Clients as the source has them: by writer, account, role or site.

The filters are those by which the papers choose clients: LEAF's (arXiv
1812.01097) share of the data and least examples, as in CMFL (arXiv
2108.00365); the least training and test examples, as in PPFL (arXiv
2310.14337), whose 1114 clients of federated EMNIST have 100 and 25.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from pipelines.examples import hashing
from pipelines.partitions import apportion
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of law `'natural'`: which clients are left out.

  Attributes:
    sample_fraction: Clients are kept in random order until they have this
      share of all examples, above 0. The other filters come after it.
    min_examples: Least examples of a client in all its splits.
    min_train_examples: Least training examples.
    min_test_examples: Least test examples.
  """

  sample_fraction: float = 1.0
  min_examples: int = 0
  min_train_examples: int = 0
  min_test_examples: int = 0

  def __post_init__(self) -> None:
    checks.check_positive('sample_fraction', self.sample_fraction)
    checks.check_fraction('sample_fraction', self.sample_fraction)
    for name in ('min_examples', 'min_train_examples', 'min_test_examples'):
      checks.check_int(name, getattr(self, name), minimum=0)


class Clients(NamedTuple):
  """All clients of a source, or those of them that are kept.

  Attributes:
    names: Sorted, `[num_clients]`.
    lot: Hash of each name, uint64 `[num_clients]`: the order of choosing.
    sizes: Their examples by split, int64 `[3, num_clients]`.
  """

  names: Array
  lot: Array
  sizes: Array


def check_named(client: Array) -> None:
  """Raises DataError if an example belongs to no client."""
  num_unnamed = int(np.sum(client == ''))
  if num_unnamed:
    raise errors.DataError(
      "partition.law 'natural' needs the client of every example, and "
      f"{num_unnamed} examples have none; set the source's column of clients "
      'or use another law.'
    )


def draw_lots(names: Array, seed: int, purpose: str) -> Array:
  """Returns a hash of each client's name, uint64 `[num_clients]`."""
  keys = np.array(
    [np.frombuffer(hashing.text_key(name), np.uint8) for name in names]
  )
  return hashing.draw(keys, seed, purpose)


def choose(
  options: Options, clients: Clients, num_clients: int | None, num_unseen: int
) -> Array:
  """Returns which clients are kept, ascending, int64 `[num_kept]`.

  Args:
    options: The filters.
    clients: All clients.
    num_clients: How many of those that pass shall take part, chosen by lot;
      None for all.
    num_unseen: Unseen clients, in addition.

  Raises:
    PartitionError: If fewer clients pass than are wanted.
  """
  kept = _sample(options.sample_fraction, clients)
  train, _, test = clients.sizes
  passes = (
    (clients.sizes.sum(axis=0) >= options.min_examples)
    & (train >= options.min_train_examples)
    & (test >= options.min_test_examples)
  )
  kept = kept[passes[kept]]
  wanted = (1 if num_clients is None else num_clients) + num_unseen
  if wanted > len(kept):
    raise errors.PartitionError(
      f'partition.num_clients is {num_clients} and num_unseen_clients is '
      f'{num_unseen}; the source has only {len(clients.names)} clients, of '
      f'which {len(kept)} pass the filters of partition.options, and at least '
      'one must be left to train.'
    )
  if num_clients is not None:
    kept = kept[:wanted]
  return np.sort(kept)


def _sample(fraction: float, clients: Clients) -> Array:
  """Returns clients in the order of their lots, until they have enough."""
  order = np.argsort(clients.lot, kind='stable')
  sizes = clients.sizes.sum(axis=0)[order]
  before = np.cumsum(sizes) - sizes
  return order[before < fraction * sizes.sum()] if fraction < 1 else order


def count_sizes(index: Array, roles: Array, num_clients: int) -> Array:
  """Returns the examples of each client by split, int64 `[3, num_clients]`.

  Args:
    index: The client of each example, `[n]`.
    roles: Its position in `schema.SPLITS`; any other number is in none.
    num_clients: How many clients there are.
  """
  return np.stack(
    [
      np.bincount(index[roles == split], minlength=num_clients)
      for split in range(3)
    ]
  )


def renumber(kept: Array, num_clients: int) -> Array:
  """Returns the new number of each client, `NOBODY` if it is left out.

  Args:
    kept: Clients in their new order.
    num_clients: How many there were.

  Returns:
    int32 `[num_clients]`.
  """
  rank = np.full(num_clients, apportion.NOBODY, np.int32)
  rank[kept] = np.arange(len(kept))
  return rank
