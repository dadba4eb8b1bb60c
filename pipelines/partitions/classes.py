"""Partition with few classes per client (label skew)."""

import dataclasses

import numpy as np

from pipelines.partitions import apportion, class_choice, division
from tff_algos.core import checks, seeds


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'classes_per_client'`.

  Attributes:
    classes_per_client: Number of distinct classes per client.
  """

  classes_per_client: int

  def __post_init__(self) -> None:
    checks.check_int('classes_per_client', self.classes_per_client, minimum=1)


def divide(options: Options, request: division.Request) -> division.Division:
  """Divides each class evenly among the clients that drew it.

  Each class with examples is drawn by the same number of clients, up to one.

  Raises:
    PartitionError: If there are fewer classes than `classes_per_client`, or a
      class has fewer examples than clients.
  """
  counts = request.counts
  division.check_num_classes(
    'classes_per_client', options.classes_per_client, counts
  )
  generator = seeds.numpy_generator(request.seed, 'partition/classes')
  present = np.flatnonzero(counts)
  places = apportion.largest_remainder(
    np.full((1, len(present)), 1 / len(present)),
    np.array([request.everyone * options.classes_per_client]),
  )[0]
  chosen = np.zeros((request.everyone, len(counts)), bool)
  chosen[:, generator.permutation(present)] = class_choice.draw_classes(
    places, request.everyone, generator
  )
  holders = chosen.sum(axis=0)
  for label in present:
    division.check_enough(
      f'class {label}', int(counts[label]), int(holders[label])
    )
  return division.Division(
    division.by_class(len(counts)), chosen / np.maximum(holders, 1)
  )
