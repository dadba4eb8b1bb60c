"""Shard partition: shards of one class each, assigned to the clients.

McMahan et al. (arXiv 1602.05629), section 3, and the filter-decomposition
paper (arXiv 2503.08652), section "Experiments": (M, K') cuts the training
examples into M K' shards and deals K' of them to each of M clients.
"""

import dataclasses

import numpy as np

from pipelines.partitions import apportion, class_choice, division
from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'shards'`.

  Attributes:
    shards_per_client: K', shards per client.
    distinct_classes: Whether the shards of a client must be of distinct
      classes; otherwise a client may get several shards of one class.
  """

  shards_per_client: int
  distinct_classes: bool = True

  def __post_init__(self) -> None:
    checks.check_int('shards_per_client', self.shards_per_client, minimum=1)


def divide(options: Options, request: division.Request) -> division.Division:
  """Assigns M K' shards; shards of a class are equal, up to one example.

  A class has shards in proportion to its examples, by largest remainder: with
  as many examples of each class all shards are equal, as in the papers.

  Raises:
    PartitionError: If a class is too small for a shard, or so large that
      distinct classes per client are impossible.
  """
  counts, num_clients = request.counts, request.everyone
  num_shards = num_clients * options.shards_per_client
  shards = _count_shards(counts, num_shards)
  generator = seeds.numpy_generator(request.seed, 'partition/shards')
  if options.distinct_classes:
    _check_distinct(options, shards, num_clients)
    dealt = class_choice.draw_classes(shards, num_clients, generator)
  else:
    deck = generator.permutation(np.repeat(np.arange(len(counts)), shards))
    hands = deck.reshape(num_clients, options.shards_per_client)
    dealt = np.stack([np.bincount(h, minlength=len(counts)) for h in hands])
  return division.Division(
    division.by_class(len(counts)),
    dealt / np.maximum(shards, 1),
    facts={'shards_of_class': shards.tolist()},
  )


def _count_shards(counts: Array, num_shards: int) -> Array:
  """Returns the number of shards of each class, int64 `[num_classes]`."""
  total = int(counts.sum())
  if num_shards > total:
    raise errors.PartitionError(
      f'the partition wants {num_shards} shards of at least one example and '
      f'there are only {total} training examples. Lower partition.num_clients '
      'or partition.options.shards_per_client.'
    )
  shards = apportion.largest_remainder(
    counts[None] / total, np.array([num_shards])
  )[0]
  for label in np.flatnonzero((counts > 0) & (shards == 0)):
    raise errors.PartitionError(
      f'class {label} has {counts[label]} of {total} training examples, too '
      f'few for one of {num_shards} shards of one class each. Raise '
      'partition.num_clients or partition.options.shards_per_client, or leave '
      'the class out.'
    )
  return shards


def _check_distinct(options: Options, shards: Array, num_clients: int) -> None:
  division.check_num_classes(
    'shards_per_client', options.shards_per_client, shards
  )
  label = int(np.argmax(shards))
  if shards[label] > num_clients:
    raise errors.PartitionError(
      f'class {label} makes {shards[label]} shards for {num_clients} clients, '
      'so a client must get two of it. Set '
      'partition.options.distinct_classes=False, or lower shards_per_client.'
    )
