"""What a law that divides the examples by their classes decides."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.partitions import apportion
from tff_algos.core import errors
from tff_algos.core.structures import Array


class Request(NamedTuple):
  """What such a law is asked for.

  Attributes:
    counts: Examples of each class that there are to train on (all of them if
      clients are split one by one), int64 `[num_classes]`.
    num_clients: Participating clients.
    num_unseen: Unseen clients, after the participating ones.
    seed: The dataset's seed.
  """

  counts: Array
  num_clients: int
  num_unseen: int
  seed: int

  @property
  def everyone(self) -> int:
    """Returns the number of all clients."""
    return self.num_clients + self.num_unseen


class Division(NamedTuple):
  """Who gets which share of which classes.

  Attributes:
    pool_of_class: The pool that the examples of each class lie in,
      `apportion.NOBODY` if no client gets any, int64 `[num_classes]`.
    shares: Share of each pool that each client gets, float64 `[num_clients,
      num_pools]`; columns sum to 1 at most. Every split is divided alike.
    clusters: The planted cluster of each client, int32 `[num_clients]`; None
      if the law plants none.
    facts: What else was planted, JSON-ready, for the manifest.
  """

  pool_of_class: Array
  shares: Array
  clusters: Array | None = None
  facts: Mapping[str, Any] = {}

  def pool_sizes(self, counts: Array) -> Array:
    """Returns the examples in each pool, from those of each class.

    Args:
      counts: int64 `[..., num_classes]`.

    Returns:
      int64 `[..., num_pools]`.
    """
    used = self.pool_of_class != apportion.NOBODY
    is_in = self.pool_of_class == np.arange(self.shares.shape[1])[:, None]
    return np.where(used, counts, 0) @ is_in.T


def by_class(num_classes: int) -> Array:
  """Returns the pools of a law for which each class is one."""
  return np.arange(num_classes)


def check_num_classes(name: str, wanted: int, counts: Array) -> None:
  """Raises PartitionError if clients want more classes than have examples."""
  present = int(np.sum(counts > 0))
  if wanted > present:
    raise errors.PartitionError(
      f'partition.options.{name} is {wanted} and only {present} classes have '
      'examples; lower it.'
    )


def check_enough(what: str, num_examples: int, num_clients: int) -> None:
  """Raises PartitionError if a pool cannot give each of its clients one."""
  if num_examples < num_clients:
    raise errors.PartitionError(
      f'{what} has {num_examples} training examples for {num_clients} clients; '
      'lower partition.num_clients or partition.num_unseen_clients.'
    )
