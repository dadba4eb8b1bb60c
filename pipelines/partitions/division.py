"""Input and result of partitions by class."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.partitions import apportion
from tff_algos.core import errors
from tff_algos.core.structures import Array


class Request(NamedTuple):
  """Input of a partition by class.

  Attributes:
    counts: Training examples of each class (all examples with per-client
      splits), int64 `[num_classes]`.
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
  """Shares of the classes for each client.

  Attributes:
    pool_of_class: Pool of each class, `apportion.NOBODY` for unused classes,
      int64 `[num_classes]`.
    shares: Share of each pool for each client, float64 `[num_clients,
      num_pools]`; columns sum to 1 at most. Equal for all splits.
    clusters: Ground-truth cluster of each client, int32 `[num_clients]`; None
      without any.
    facts: Further ground truth for the manifest, JSON-ready.
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
  """Returns one pool for each class."""
  return np.arange(num_classes)


def check_num_classes(name: str, wanted: int, counts: Array) -> None:
  """Raises PartitionError if there are too few classes with examples."""
  present = int(np.sum(counts > 0))
  if wanted > present:
    raise errors.PartitionError(
      f'partition.options.{name} is {wanted} and only {present} classes have '
      'examples; lower it.'
    )


def check_enough(what: str, num_examples: int, num_clients: int) -> None:
  """Raises PartitionError if a pool has fewer examples than clients."""
  if num_examples < num_clients:
    raise errors.PartitionError(
      f'{what} has {num_examples} training examples for {num_clients} clients; '
      'lower partition.num_clients or partition.num_unseen_clients.'
    )
