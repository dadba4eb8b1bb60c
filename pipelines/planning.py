"""Decides which client gets which example, from a survey of the raw data."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipelines import hashing, options, partitions, splits
from tff_algos.core import errors
from tff_algos.data import schema

NOBODY = -1


class Survey(NamedTuple):
  """What must be known of every sound raw example, in the source's order.

  Attributes:
    key: Content keys, uint8 `[n, KEY_BYTES]`.
    is_test: In the source's official test split, bool `[n]`.
    native_source: Its own distribution, -1 if none, int32 `[n]`.
    client: The client it belongs to by nature, '' if none, str `[n]`.
  """

  key: np.ndarray
  is_test: np.ndarray
  native_source: np.ndarray
  client: np.ndarray


class Plan(NamedTuple):
  """Who gets what.

  Attributes:
    client_ids: All clients: participating, then unseen; sorted within each.
    groups: Group of each client.
    mixtures: Planned shares, `[num_clients, num_sources]`; None if natural.
    roles: Role of each raw example, see `splits.assign_roles`, int8 `[n]`.
    owners: Client that gets it as each distribution shows it, `NOBODY` if
      none, int32 `[num_sources, n]`.
  """

  client_ids: tuple[str, ...]
  groups: tuple[str, ...]
  mixtures: np.ndarray | None
  roles: np.ndarray
  owners: np.ndarray


def join_surveys(surveys: Sequence[Survey]) -> Survey:
  """Returns one survey of the examples of several, in their order."""
  columns = zip(*surveys, strict=True)
  return Survey(*(np.concatenate(column) for column in columns))


def make_plan(
  survey: Survey,
  config: options.DatasetConfig,
  source_names: Sequence[str],
  *,
  has_test_split: bool,
) -> Plan:
  """Returns who gets what; the same survey and config give the same plan.

  Raises:
    PartitionError: If the partition needs more examples than there are.
    ConfigError: If the partition does not go with the distributions.
    DataError: If a natural partition meets an example of no client.
  """
  roles = splits.assign_roles(
    survey.key,
    survey.is_test,
    config.splits,
    has_test_split=has_test_split,
    seed=config.seed,
  )
  if config.partition.law == options.NATURAL:
    plan = _natural_plan(survey, config, len(source_names), roles)
  else:
    plan = _mixture_plan(survey, config, tuple(source_names), roles)
  if config.num_shards > len(plan.client_ids):
    raise errors.ConfigError(
      f'num_shards is {config.num_shards} and there are only '
      f'{len(plan.client_ids)} clients; lower num_shards'
    )
  return plan


def shard_of(client: np.ndarray, num_clients: int, num_shards: int):
  """Returns the shard of clients by index; each holds a run of clients."""
  return client * num_shards // num_clients


def clients_of(shard: int, num_clients: int, num_shards: int) -> range:
  """Returns the clients of a shard, in the order of their records."""
  first = -(-shard * num_clients // num_shards)
  last = -(-(shard + 1) * num_clients // num_shards)
  return range(first, last)


def _mixture_plan(
  survey: Survey,
  config: options.DatasetConfig,
  source_names: tuple[str, ...],
  roles: np.ndarray,
) -> Plan:
  """Draws every client's examples without replacement from the pools."""
  groups = {
    schema.PARTICIPATING: config.partition.num_clients,
    schema.UNSEEN: config.partition.num_unseen_clients,
  }
  mixtures = np.concatenate(
    [
      partitions.build_mixtures(
        config.partition,
        count,
        len(source_names),
        partitions.partition_generator(config.seed, group, 'mixtures'),
      )
      for group, count in groups.items()
    ]
  )
  pools = _pools(survey, roles, len(source_names))
  available = np.array([[len(pool) for pool in row] for row in pools])
  if config.sizes.law == options.EQUAL:
    size = partitions.largest_equal_size(mixtures, available, config.splits)
    sizes = np.full(len(mixtures), size)
  else:
    sizes = np.concatenate(
      [
        partitions.draw_sizes(
          config.sizes,
          count,
          partitions.partition_generator(config.seed, group, 'sizes'),
        )
        for group, count in groups.items()
      ]
    )
  quotas = partitions.count_quotas(mixtures, sizes, config.splits)
  partitions.check_available(
    quotas.sum(axis=1), available, source_names, schema.SPLITS
  )
  return Plan(
    client_ids=_number('client', groups[schema.PARTICIPATING])
    + _number('unseen', groups[schema.UNSEEN]),
    groups=_repeat(groups),
    mixtures=mixtures,
    roles=roles,
    owners=_draw(survey, pools, quotas, config.seed),
  )


def _pools(
  survey: Survey, roles: np.ndarray, num_sources: int
) -> list[list[np.ndarray]]:
  """Returns the examples of each split and source distribution."""
  return [
    [
      np.flatnonzero((roles == split) & is_shown_by(survey.native_source, s))
      for s in range(num_sources)
    ]
    for split in range(len(schema.SPLITS))
  ]


def is_shown_by(native_source: np.ndarray, source: int) -> np.ndarray:
  """Returns which raw examples a source distribution shows, bool `[n]`."""
  return (native_source == -1) | (native_source == source)


def _draw(
  survey: Survey,
  pools: list[list[np.ndarray]],
  quotas: np.ndarray,
  seed: int,
) -> np.ndarray:
  """Deals each pool, shuffled by content hash, to the clients in turn."""
  num_splits, num_clients, num_sources = quotas.shape
  owners = np.full((num_sources, len(survey.key)), NOBODY, np.int32)
  for s in range(num_sources):
    lot = hashing.draw(survey.key, seed, f'partition/draw/{s}')
    for split in range(num_splits):
      pool = pools[split][s]
      dealt = np.repeat(np.arange(num_clients), quotas[split, :, s])
      shuffled = pool[np.argsort(lot[pool], kind='stable')]
      owners[s, shuffled[: len(dealt)]] = dealt
  return owners


def _natural_plan(
  survey: Survey,
  config: options.DatasetConfig,
  num_sources: int,
  roles: np.ndarray,
) -> Plan:
  """Gives every example to the client that it belongs to by nature."""
  if num_sources != 1 or config.sizes.law != options.EQUAL:
    raise errors.ConfigError(
      f"partition.law 'natural' takes one source distribution, got "
      f'{num_sources}, and no sizes, got sizes.law={config.sizes.law!r}'
    )
  is_dealt = (roles >= 0) & (roles < len(schema.SPLITS))
  names, index = np.unique(survey.client, return_inverse=True)
  if '' in names:
    raise errors.DataError(
      "partition.law 'natural' needs the client of every example, and "
      f'{int(np.sum(survey.client == ""))} examples have none; set the '
      "source's column of clients or use another law."
    )
  num_unseen = config.partition.num_unseen_clients
  if num_unseen >= len(names):
    raise errors.PartitionError(
      f'partition.num_unseen_clients is {num_unseen} and the source has only '
      f'{len(names)} clients; at least one must be left to train.'
    )
  keys = np.array(
    [np.frombuffer(hashing.text_key(name), np.uint8) for name in names]
  )
  lot = hashing.draw(keys, config.seed, 'partition/unseen')
  unseen = set(np.argsort(lot, kind='stable')[:num_unseen].tolist())
  # Participating clients first; np.unique has sorted the names.
  order = sorted(range(len(names)), key=lambda i: (i in unseen, i))
  rank = np.argsort(order)
  owners = np.where(is_dealt, rank[index], NOBODY).astype(np.int32)
  return Plan(
    client_ids=tuple(str(names[i]) for i in order),
    groups=_repeat(
      {
        schema.PARTICIPATING: len(names) - num_unseen,
        schema.UNSEEN: num_unseen,
      }
    ),
    mixtures=None,
    roles=roles,
    owners=owners[None],
  )


def _number(prefix: str, count: int) -> tuple[str, ...]:
  width = max(5, len(str(count)))
  return tuple(f'{prefix}_{i:0{width}d}' for i in range(count))


def _repeat(counts: dict[str, int]) -> tuple[str, ...]:
  return tuple(name for name, count in counts.items() for _ in range(count))
