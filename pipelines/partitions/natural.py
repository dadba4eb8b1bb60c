"""Natural partition: clients of the source, such as writers or accounts.

The filters are those by which the papers select clients: LEAF's (arXiv
1812.01097) share of the data and least examples, as in CMFL (arXiv
2108.00365); the least training and test examples, as in PPFL (arXiv
2310.14337), whose 1114 clients of federated EMNIST have 100 and 25.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from pipelines.partitions import apportion
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'natural'`: filters of clients.

  Attributes:
    sample_fraction: Share of all examples to keep, > 0: clients are kept in
      random order until they reach it. The other filters apply afterwards.
    min_examples: Least number of examples of a client in all splits.
    min_train_examples: Least number of training examples.
    min_test_examples: Least number of test examples.
    unseen_fraction: Share of unseen clients, < 1: those whose name has a hash
      below it, so that a client is in the same group in every dataset of one
      seed. In place of `num_unseen_clients`, the least hashes of a dataset,
      which are others where clients come and go.
  """

  sample_fraction: float = 1.0
  min_examples: int = 0
  min_train_examples: int = 0
  min_test_examples: int = 0
  unseen_fraction: float = 0.0

  def __post_init__(self) -> None:
    checks.check_share('sample_fraction', self.sample_fraction)
    for name in ('min_examples', 'min_train_examples', 'min_test_examples'):
      checks.check_int(name, getattr(self, name), minimum=0)
    checks.check_below_one('unseen_fraction', self.unseen_fraction)


class Clients(NamedTuple):
  """Clients of a source, all or the selected ones.

  Attributes:
    names: Sorted, `[num_clients]`.
    lot: Hash of each name, uint64 `[num_clients]`: the order of selection.
    sizes: Number of examples by split, int64 `[3, num_clients]`.
    is_labelled: Whether a client has a label at all, bool `[num_clients]`.
  """

  names: Array
  lot: Array
  sizes: Array
  is_labelled: Array


def choose(
  options: Options, clients: Clients, num_clients: int | None, num_unseen: int
) -> Array:
  """Returns the selected clients, ascending, int64 `[num_kept]`.

  Args:
    options: The filters.
    clients: All clients.
    num_clients: Number of participating clients, sampled from those that pass
      the filters; None for all.
    num_unseen: Unseen clients, in addition.

  Raises:
    PartitionError: If too few clients pass the filters.
  """
  kept = _sample(options.sample_fraction, clients)
  train, _, test = clients.sizes
  passes = (
    (clients.sizes.sum(axis=0) >= options.min_examples)
    & (train >= options.min_train_examples)
    & (test >= options.min_test_examples)
  )
  kept = kept[(passes & clients.is_labelled)[kept]]
  if not clients.is_labelled.any() and num_clients is None and not num_unseen:
    return kept  # A dataset of unlabelled clients, to be scored.
  wanted = (1 if num_clients is None else num_clients) + num_unseen
  if wanted > len(kept):
    raise errors.PartitionError(
      f'partition.num_clients is {num_clients} and num_unseen_clients is '
      f'{num_unseen}; the source has only {len(clients.names)} clients, of '
      f'which {len(kept)} have labels and pass the filters of '
      'partition.options, and at least one must be left to train.'
    )
  if num_clients is not None:
    kept = kept[:wanted]
  return np.sort(kept)


def _sample(fraction: float, clients: Clients) -> Array:
  """Returns the first clients by lot with the given share of examples."""
  order = np.argsort(clients.lot, kind='stable')
  sizes = clients.sizes.sum(axis=0)[order]
  before = np.cumsum(sizes) - sizes
  return order[before < fraction * sizes.sum()] if fraction < 1 else order


def count_sizes(index: Array, roles: Array, num_clients: int) -> Array:
  """Returns the examples of each client by split, int64 `[3, num_clients]`.

  Args:
    index: Client of each example, `[n]`.
    roles: Position in `schema.SPLITS`; other numbers are in no split.
    num_clients: Number of clients.
  """
  return np.stack(
    [
      np.bincount(index[roles == split], minlength=num_clients)
      for split in range(3)
    ]
  )


def renumber(kept: Array, num_clients: int) -> Array:
  """Returns the new index of each client, `NOBODY` if it is not selected.

  Args:
    kept: Selected clients in their new order.
    num_clients: Number of all clients.

  Returns:
    int32 `[num_clients]`.
  """
  rank = np.full(num_clients, apportion.NOBODY, np.int32)
  rank[kept] = np.arange(len(kept))
  return rank
