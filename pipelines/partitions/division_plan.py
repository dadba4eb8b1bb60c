"""Plans of partitions by class."""

import numpy as np

from pipelines import options
from pipelines.examples import hashing, splits
from pipelines.partitions import (
  apportion,
  clients,
  division,
  feature_shift,
  registry,
)
from pipelines.steps import planning
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import schema


def make_plan(
  survey: planning.Survey,
  config: options.DatasetConfig,
  roles: Array,
  *,
  num_classes: int,
  num_sources: int,
) -> planning.Plan:
  """Returns a plan that divides each class, with equal shares in every split.

  There is a pool for each split and class, or group of classes.

  Args:
    survey: All valid examples.
    config: The dataset's config.
    roles: Result of `splits.assign_roles`.
    num_classes: Number of classes.
    num_sources: Number of source distributions.

  Raises:
    PartitionError: If the examples are too few for the partition.
  """
  groups = clients.count_groups(config.partition)
  counts = _count_classes(survey.y, roles, num_classes)
  law = registry.DIVISIONS[config.partition.law]
  divided = law.divide(
    config.partition.law_options,
    division.Request(
      counts[0],
      groups[schema.PARTICIPATING],
      groups[schema.UNSEEN],
      config.seed,
    ),
  )
  quotas = np.stack(
    [
      apportion.apportion(divided.shares, available)
      for available in divided.pool_sizes(counts)
    ]
  )
  if config.splits.client_test == options.DEALT:
    _check_tests(quotas)
  else:
    quotas[splits.HELD_OUT] = 0
  owners = _deal(survey, config, roles, divided.pool_of_class, quotas)
  has_class, label_mixtures = _plan_labels(divided, quotas[0], counts[0])
  shared_test = None
  if config.splits.client_test == options.ALL_OF_CLASSES:
    shared_test = _share_tests(has_class, counts[splits.HELD_OUT])
  mixtures, shown = feature_shift.show(
    owners, survey, groups, num_sources, config
  )
  return planning.Plan(
    client_ids=clients.name_clients(groups),
    groups=clients.repeat_groups(groups),
    mixtures=mixtures,
    roles=splits.split_clients(
      owners, survey, roles, config.splits, config.seed
    ),
    owners=shown,
    planted=planning.Planted(divided.clusters, label_mixtures, divided.facts),
    shared_test=shared_test,
  )


def _count_classes(y: Array, roles: Array, num_classes: int) -> Array:
  """Returns the examples of each role and class, int64 `[4, num_classes]`."""
  used = roles >= 0
  num_roles = splits.HELD_OUT + 1
  cell = roles[used].astype(np.int64) * num_classes + y[used]
  counts = np.bincount(cell, minlength=num_roles * num_classes)
  return counts.reshape(num_roles, num_classes)


def _deal(
  survey: planning.Survey,
  config: options.DatasetConfig,
  roles: Array,
  pool_of_class: Array,
  quotas: Array,
) -> Array:
  """Returns the client of each example, int32 `[n]`.

  Args:
    survey: All valid examples.
    config: The dataset's config.
    roles: Role of each example.
    pool_of_class: See `division.Division`.
    quotas: int64 `[4, num_clients, num_pools]`, by role.
  """
  _, num_clients, num_pools = quotas.shape
  pool = pool_of_class[survey.y]
  is_dealt = (roles >= 0) & (pool != planning.NOBODY)
  return apportion.deal(
    np.where(is_dealt, roles.astype(np.int64) * num_pools + pool, -1),
    hashing.draw(survey.key, config.seed, 'partition/draw/0'),
    quotas.transpose(0, 2, 1).reshape(-1, num_clients),
  )


def _plan_labels(
  divided: division.Division, quotas: Array, counts: Array
) -> tuple[Array, Array]:
  """Returns the classes that clients train on, and their planted mixtures.

  Args:
    divided: The division.
    quotas: Training examples of each client from each pool.
    counts: Training examples of each class.
  """
  pool = divided.pool_of_class
  share = np.where(pool == planning.NOBODY, 0, counts)
  share = share / np.maximum(divided.pool_sizes(counts)[pool], 1)
  expected = quotas[:, pool] * share
  sums = expected.sum(axis=1, keepdims=True)
  return expected > 0, expected / np.where(sums > 0, sums, 1)


def _check_tests(quotas: Array) -> None:
  """Raises PartitionError if a client lacks test examples of a class."""
  lacks = (quotas[0] > 0) & (quotas[splits.HELD_OUT] == 0)
  if lacks.any():
    raise errors.PartitionError(
      'the held-out examples are too few to be dealt: '
      f'{lacks.any(axis=1).sum()}'
      f' of {len(lacks)} clients would have none of a class that they train '
      "on. Use splits.client_test='all_of_classes', or fewer clients."
    )


def _share_tests(has_class: Array, held_out: Array) -> Array:
  """Returns `planning.Plan.shared_test`."""
  lacking = np.flatnonzero(has_class.any(axis=0) & (held_out == 0))
  if len(lacking):
    raise errors.PartitionError(
      f'no held-out example has class {lacking[0]}, so clients that train on '
      'it cannot be tested on it; raise splits.held_out_fraction, or use '
      "splits.client_test='ratio'."
    )
  return has_class * held_out
