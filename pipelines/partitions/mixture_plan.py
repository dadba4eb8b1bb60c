"""Plans of partitions that mix source distributions."""

from collections.abc import Mapping

import numpy as np

from pipelines import options
from pipelines.examples import hashing, splits
from pipelines.partitions import apportion, clients, mixtures, sizes
from pipelines.partitions import quotas as quotas_lib
from pipelines.steps import planning
from tff_algos.core.structures import Array
from tff_algos.data import schema


def make_plan(
  survey: planning.Survey,
  config: options.DatasetConfig,
  source_names: tuple[str, ...],
  roles: Array,
) -> planning.Plan:
  """Returns a plan of clients that sample pools without replacement.

  There is a pool for each split and source distribution.

  Args:
    survey: All valid examples.
    config: The dataset's config.
    source_names: Names of the source distributions.
    roles: Result of `splits.assign_roles`.

  Raises:
    PartitionError: If a pool has too few examples.
  """
  groups = clients.count_groups(config.partition)
  mixture = _build_mixtures(config, groups, len(source_names))
  pools = _pools(
    survey, roles, len(source_names), config.distributions.num_views
  )
  available = np.stack(
    [
      np.bincount(pool[pool >= 0], minlength=len(schema.SPLITS))
      for pool in pools
    ],
    axis=1,
  )
  train_sizes = sizes.choose_sizes(
    config.sizes,
    config.splits,
    mixture,
    available,
    groups=groups,
    seed=config.seed,
  )
  quotas = quotas_lib.count_quotas(mixture, train_sizes, config.splits)
  quotas_lib.check_available(quotas.sum(axis=1), available, source_names)
  owners = np.stack(
    [
      apportion.deal(
        pool,
        hashing.draw(survey.key, config.seed, f'partition/draw/{s}'),
        quotas[:, :, s],
      )
      for s, pool in enumerate(pools)
    ]
  )
  return planning.Plan(
    client_ids=clients.name_clients(groups),
    groups=clients.repeat_groups(groups),
    mixtures=mixture,
    roles=splits.split_clients(
      owners.max(axis=0), survey, roles, config.splits, config.seed
    ),
    owners=owners,
  )


def _build_mixtures(
  config: options.DatasetConfig, groups: Mapping[str, int], num_sources: int
) -> Array:
  """Returns the mixtures of all clients; the scheme applies to each group."""
  return np.concatenate(
    [
      mixtures.build_mixtures(
        config.partition.law,
        count,
        num_sources,
        mixtures.mixture_generator(config.seed, group),
      )
      for group, count in groups.items()
    ]
  )


def _pools(
  survey: planning.Survey, roles: Array, num_sources: int, num_views: int
) -> list[Array]:
  """Returns the pool (split) of each example by source distribution."""
  is_dealt = (roles >= 0) & (roles < len(schema.SPLITS))
  return [
    np.where(
      is_dealt & planning.is_shown_by(survey.native_source, s // num_views),
      roles,
      planning.NOBODY,
    )
    for s in range(num_sources)
  ]
