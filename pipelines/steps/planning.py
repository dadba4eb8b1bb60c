"""Data types of a build plan: survey, ground truth, assignment, shards."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.partitions import apportion
from tff_algos.core.structures import Array

NOBODY = apportion.NOBODY


class Survey(NamedTuple):
  """Survey of all valid raw examples, in the source's order.

  Attributes:
    key: Content keys, uint8 `[n, KEY_BYTES]`.
    is_test: Whether it is in the official test split, bool `[n]`.
    native_source: Native source distribution, -1 if none, int32 `[n]`.
    client: Natural client, '' if none, str `[n]`.
    y: Labels, int32 or float32 `[n, *y_shape]`.
    group: See `cleaning.CleanBlock`.
    time: See `cleaning.CleanBlock`.
  """

  key: Array
  is_test: Array
  native_source: Array
  client: Array
  y: Array
  group: Array
  time: Array


class Planted(NamedTuple):
  """Ground truth of a partition besides mixtures of source distributions.

  Attributes:
    clusters: Ground-truth cluster of each client, int32 `[num_clients]`; None
      without any.
    label_mixtures: Planned share of each class in the training examples of
      each client, float64 `[num_clients, num_classes]`; rows sum to 1, or are
      0 for an empty client. None if the scheme ignores classes.
    facts: Further facts, JSON-ready.
  """

  clusters: Array | None = None
  label_mixtures: Array | None = None
  facts: Mapping[str, Any] = {}


class Plan(NamedTuple):
  """Assignment of examples to clients.

  Attributes:
    client_ids: All clients: participating, unseen, then unlabelled; sorted
      within each.
    groups: Group of each client.
    mixtures: Planned shares, `[num_clients, num_sources]`; None if the scheme
      does not mix source distributions.
    roles: Role of each raw example, see `splits.assign_roles`, int8 `[n]`. A
      held-out example with an owner is also a test example of the owner.
    owners: Client of each example in each source distribution, `NOBODY` if
      none, int32 `[num_sources, n]`.
    planted: Further ground truth.
    shared_test: Held-out examples of each class that each client is tested
      on, int64 `[num_clients, num_classes]`; None if none are shared.
  """

  client_ids: tuple[str, ...]
  groups: tuple[str, ...]
  mixtures: Array | None
  roles: Array
  owners: Array
  planted: Planted = Planted()
  shared_test: Array | None = None


def join_surveys(surveys: Sequence[Survey]) -> Survey:
  """Returns the concatenation of several surveys."""
  columns = zip(*surveys, strict=True)
  return Survey(*(np.concatenate(column) for column in columns))


def shard_of(client: Array, num_clients: int, num_shards: int) -> Array:
  """Returns the shard of clients by index; shards hold consecutive clients."""
  return client.astype(np.int64) * num_shards // num_clients


def clients_of(shard: int, num_clients: int, num_shards: int) -> range:
  """Returns the clients of a shard, in the order of their records."""
  first = -(-shard * num_clients // num_shards)
  last = -(-(shard + 1) * num_clients // num_shards)
  return range(first, last)


def is_shown_by(native_source: Array, native: int) -> Array:
  """Returns a mask of the raw examples of a native distribution.

  Args:
    native_source: See `Survey`.
    native: Index of the native distribution.

  Returns:
    bool `[n]`; examples without a native distribution belong to all.
  """
  return (native_source == -1) | (native_source == native)
