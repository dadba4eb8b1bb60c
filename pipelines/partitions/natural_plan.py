"""Plans of natural partitions."""

import numpy as np

from pipelines import options
from pipelines.examples import splits
from pipelines.partitions import clients, feature_shift, natural
from pipelines.steps import planning
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
    PartitionError: If too few clients pass the filters.
  """
  names, index = np.unique(survey.client, return_inverse=True)
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
  num_unseen = config.partition.num_unseen_clients
  kept = natural.choose(
    config.partition.law_options,
    natural.Clients(
      names,
      natural.draw_lots(names, config.seed, 'partition/clients'),
      natural.count_sizes(index, split, len(names)),
      labels > 0,
    ),
    config.partition.num_clients,
    num_unseen,
  )
  # Examples of clients without any label are test examples, not held out.
  to_score = labels[index] == 0
  roles[to_score], is_dealt[to_score] = splits.TEST, True
  order = np.concatenate(
    [
      _order(names, kept, num_unseen, config.seed),
      np.flatnonzero(labels == 0),
    ]
  )
  owners = natural.renumber(order, len(names))[index]
  owners = np.where(is_dealt, owners, planning.NOBODY).astype(np.int32)
  groups = {
    schema.PARTICIPATING: len(kept) - num_unseen,
    schema.UNSEEN: num_unseen,
    schema.UNLABELLED: len(order) - len(kept),
  }
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


def _is_dealt(roles: Array, config: options.SplitsConfig) -> Array:
  """Returns a mask of the examples assigned to clients, bool `[n]`."""
  last = splits.HELD_OUT if config.client_test == options.DEALT else splits.TEST
  return (roles >= 0) & (roles <= last)


def _order(names: Array, kept: Array, num_unseen: int, seed: int) -> Array:
  """Returns the selected clients, participating ones first, sorted by name.

  Args:
    names: All clients, sorted.
    kept: Positions of the selected clients, ascending.
    num_unseen: Number of unseen clients, sampled by lot.
    seed: The dataset's seed.
  """
  lot = natural.draw_lots(names[kept], seed, 'partition/unseen')
  by_lot = np.argsort(lot, kind='stable')
  unseen, participating = by_lot[:num_unseen], by_lot[num_unseen:]
  return kept[np.concatenate([np.sort(participating), np.sort(unseen)])]


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
