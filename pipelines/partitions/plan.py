"""Partition plan: assignment of surveyed examples to clients."""

from collections.abc import Sequence

import numpy as np

from pipelines import options
from pipelines.examples import splits
from pipelines.partitions import (
  division_plan,
  mixture_plan,
  mixtures,
  natural_plan,
  registry,
)
from pipelines.steps import planning
from tff_algos.core import errors


def check_config(
  config: options.DatasetConfig,
  *,
  num_sources: int,
  num_classes: int,
  has_test_split: bool,
  y_shape: tuple[int, ...] = (),
) -> None:
  """Raises ConfigError if a partition is incompatible with its source.

  Args:
    config: The dataset's config.
    num_sources: Number of source distributions.
    num_classes: Number of classes, 0 for regression.
    has_test_split: Whether the source has an official test split.
    y_shape: Shape of one example's label.
  """
  partition, splitting = config.partition, config.splits
  law = partition.law
  if not (partition.divides_classes or law == registry.NATURAL):
    mixtures.check_num_sources(law, num_sources)
  if partition.divides_classes and not num_classes:
    raise errors.ConfigError(
      f'partition.law {law!r} divides classes, and the labels are numbers'
    )
  if partition.divides_classes and y_shape:
    raise errors.ConfigError(
      f'partition.law {law!r} divides classes, and an example has a label at '
      f'each of {y_shape[0]} places'
    )
  if splitting.pool_test_split and not has_test_split:
    raise errors.ConfigError(
      'splits.pool_test_split is set and the source has no official test split'
    )
  holds_out = splitting.held_out_fraction > 0 or (
    has_test_split and not splitting.pool_test_split
  )
  if splitting.client_test != options.RATIO and not holds_out:
    raise errors.ConfigError(
      f'splits.client_test={splitting.client_test!r} needs held-out examples: '
      'an official test split, or splits.held_out_fraction above 0'
    )
  if (
    splitting.client_test == options.ALL_OF_CLASSES
    and num_sources != config.distributions.num_views
  ):
    raise errors.ConfigError(
      "splits.client_test='all_of_classes' shares the held-out examples of one "
      'distribution with a client; this source has distributions of its own, '
      "so a client may have several. Use 'dealt' or 'ratio'."
    )


def make_plan(
  survey: planning.Survey,
  config: options.DatasetConfig,
  source_names: Sequence[str],
  *,
  num_classes: int,
  has_test_split: bool,
) -> planning.Plan:
  """Returns the assignment of examples to clients, deterministically.

  Args:
    survey: All valid examples.
    config: Config that passed `check_config`.
    source_names: Names of the source distributions.
    num_classes: Number of classes, 0 for regression.
    has_test_split: Whether the source has an official test split.

  Raises:
    PartitionError: If the partition needs more examples than there are.
    ConfigError: If the partition is incompatible with the examples.
  """
  roles = splits.assign_roles(
    survey, config.splits, has_test_split=has_test_split, seed=config.seed
  )
  num_sources = len(source_names)
  if config.partition.law == registry.NATURAL:
    plan = natural_plan.make_plan(
      survey, config, roles, num_sources=num_sources
    )
  elif config.partition.divides_classes:
    plan = division_plan.make_plan(
      survey, config, roles, num_classes=num_classes, num_sources=num_sources
    )
  else:
    plan = mixture_plan.make_plan(survey, config, tuple(source_names), roles)
  if config.num_shards > len(plan.client_ids):
    raise errors.ConfigError(
      f'num_shards is {config.num_shards} and there are only '
      f'{len(plan.client_ids)} clients; lower num_shards'
    )
  # Those in the gap between splits by time were dealt with the others.
  owners = np.where(plan.roles < 0, planning.NOBODY, plan.owners)
  return plan._replace(owners=owners)
