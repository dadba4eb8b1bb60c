"""Names and groups of the clients of a partition."""

from collections.abc import Mapping

from pipelines import options
from tff_algos.data import schema


def count_groups(partition: options.PartitionConfig) -> dict[str, int]:
  """Returns the number of clients in each group, participating ones first."""
  return {
    schema.PARTICIPATING: partition.num_clients or 0,
    schema.UNSEEN: partition.num_unseen_clients,
  }


def name_clients(groups: Mapping[str, int]) -> tuple[str, ...]:
  """Returns the ids of all clients, sorted within each group."""
  return _number('client', groups[schema.PARTICIPATING]) + _number(
    'unseen', groups[schema.UNSEEN]
  )


def repeat_groups(groups: Mapping[str, int]) -> tuple[str, ...]:
  """Returns the group of each client."""
  return tuple(name for name, count in groups.items() for _ in range(count))


def _number(prefix: str, count: int) -> tuple[str, ...]:
  width = max(5, len(str(count)))
  return tuple(f'{prefix}_{i:0{width}d}' for i in range(count))
