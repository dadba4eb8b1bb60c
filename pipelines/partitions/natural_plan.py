"""Plans of natural partitions."""

import numpy as np

from pipelines import options
from pipelines.examples import hashing, splits
from pipelines.partitions import clients, feature_shift, natural
from pipelines.sources import cells
from pipelines.steps import planning
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import schema


def make_plan(
  survey: planning.Survey,
  config: options.DatasetConfig,
  roles: Array,
  *,
  num_sources: int,
) -> planning.Plan:
  """Returns a plan that assigns every example to its natural client.

  Args:
    survey: All valid examples.
    config: The dataset's config.
    roles: Result of `splits.assign_roles`.
    num_sources: Number of source distributions.

  Raises:
    PartitionError: If too few clients pass the filters, none can train, or one
      is named as two numbers.
  """
  names, index = np.unique(survey.client, return_inverse=True)
  _check_spellings(names)
  has_label = schema.has_label(survey.y)
  labels = np.bincount(index, has_label, len(names))
  roles = np.where(has_label, roles, splits.NO_LABEL).astype(np.int8)
  is_dealt = _is_dealt(roles, config.splits)
  roles = splits.split_clients(
    np.where(is_dealt, index, planning.NOBODY),
    survey,
    roles,
    config.splits,
    config.seed,
  )
  split = np.where(is_dealt & (roles == splits.HELD_OUT), splits.TEST, roles)
  kept = natural.choose(
    config.partition.law_options,
    natural.Clients(
      names,
      hashing.draw_lots(names, config.seed, 'partition/clients'),
      natural.count_sizes(index, split, len(names)),
      labels > 0,
    ),
    config.partition.num_clients,
    config.partition.num_unseen_clients,
  )
  is_unseen = _draw_unseen(names[kept], config)
  num_unseen = int(np.sum(is_unseen))
  if num_unseen and num_unseen == len(kept):
    raise errors.PartitionError(
      f'all {num_unseen} clients that pass the filters are unseen by '
      f'partition.options.unseen_fraction='
      f'{config.partition.law_options.unseen_fraction}, and at least one must '
      'be left to train. Lower it.'
    )
  # Examples of clients without any label are test examples, not held out.
  to_score = labels[index] == 0
  roles[to_score], is_dealt[to_score] = splits.TEST, True
  order = np.concatenate(
    [kept[~is_unseen], kept[is_unseen], np.flatnonzero(labels == 0)]
  )
  owners = natural.renumber(order, len(names))[index]
  owners = np.where(is_dealt, owners, planning.NOBODY).astype(np.int32)
  groups = {
    schema.PARTICIPATING: len(kept) - num_unseen,
    schema.UNSEEN: num_unseen,
    schema.UNLABELLED: len(order) - len(kept),
  }
  is_train = (roles == splits.TRAIN) & (owners >= 0)
  has_train = np.any(is_train & (owners < groups[schema.PARTICIPATING]))
  is_meant = config.splits.held_out_fraction == 1
  if groups[schema.PARTICIPATING] and not has_train and not is_meant:
    raise errors.PartitionError(
      'no participating client has a training example: all are in later splits '
      f'by splits.split_by={config.splits.split_by!r}, where shares for '
      'training are rounded down, and examples of one time, or group, stay '
      'together; or they are copies of examples of the official test split. '
      'Take other ratios, or another split_by'
    )
  mixtures, shown = feature_shift.show(
    owners, survey, groups, num_sources, config
  )
  return planning.Plan(
    client_ids=tuple(str(name) for name in names[order]),
    groups=clients.repeat_groups(groups),
    mixtures=mixtures,
    roles=roles,
    owners=shown,
    planted=planning.Planted(
      facts=_count_left_out(len(names) - len(order), is_dealt, owners)
    ),
  )


def _check_spellings(names: Array) -> None:
  """Raises PartitionError if an integer is also written as a float."""
  twice = cells.find_two_spellings(map(str, names))
  if twice is not None:
    raise errors.PartitionError(
      'the raw data have the clients {!r} and {!r}, which would be two. Write '
      'them alike in all files: pandas turns integers into floats if one is '
      "missing, unless they are 'Int64'".format(*twice)
    )


def _is_dealt(roles: Array, config: options.SplitsConfig) -> Array:
  """Returns a mask of the examples assigned to clients, bool `[n]`."""
  last = splits.HELD_OUT if config.client_test == options.DEALT else splits.TEST
  return (roles >= 0) & (roles <= last)


def _draw_unseen(names: Array, config: options.DatasetConfig) -> Array:
  """Returns a mask of the unseen ones among selected clients, bool `[n]`."""
  lot = hashing.draw_lots(names, config.seed, 'partition/unseen')
  fraction = config.partition.law_options.unseen_fraction
  if fraction:
    return lot < fraction * 2.0**64
  is_unseen = np.zeros(len(names), bool)
  by_lot = np.argsort(lot, kind='stable')
  is_unseen[by_lot[: config.partition.num_unseen_clients]] = True
  return is_unseen


def _count_left_out(
  num_clients: int, is_dealt: Array, owners: Array
) -> dict[str, int]:
  """Returns manifest entries of filtered-out clients; empty without any."""
  if not num_clients:
    return {}
  num_examples = np.sum(is_dealt & (owners == planning.NOBODY))
  return {
    'num_clients_left_out': num_clients,
    'num_examples_left_out': int(num_examples),
  }
