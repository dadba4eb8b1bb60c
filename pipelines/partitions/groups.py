"""Partition by class groups: groups of clients with disjoint classes.

PPFL (arXiv 2310.14337), section "Experiments", pathological data: the examples
of a group's classes are shuffled and divided evenly among its clients.
"""

import dataclasses
import random

import numpy as np

from pipelines.partitions import apportion, division, mixtures
from tff_algos.core import checks, errors


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'class_groups'`; exactly one of the two is given.

  Attributes:
    class_groups: The classes of each group, such as ((1, 9), (0, 8)); classes
      in none of them are not used.
    group_sizes: Number of classes of each group, such as (2, 2, 3, 3); their
      sum is the number of classes. The classes are drawn by Python's `random`
      from the dataset's seed: 12345 gives those of the paper's code on MNIST.
  """

  class_groups: tuple[tuple[int, ...], ...] | None = None
  group_sizes: tuple[int, ...] | None = None

  def __post_init__(self) -> None:
    if (self.class_groups is None) == (self.group_sizes is None):
      raise errors.ConfigError(
        'exactly one of class_groups and group_sizes must be given, got '
        f'class_groups={self.class_groups!r}, group_sizes={self.group_sizes!r}'
      )
    for size in self.group_sizes or ():
      checks.check_int('group_sizes', size, minimum=1)
    labels = [label for group in self.class_groups or () for label in group]
    for label in labels:
      checks.check_int('class_groups', label, minimum=0)
    if len(set(labels)) < len(labels) or () in (self.class_groups or ()):
      raise errors.ConfigError(
        'class_groups must be groups of different classes, none of them empty '
        f'and no class in two, got {self.class_groups!r}'
      )
    if not (self.class_groups or self.group_sizes):
      raise errors.ConfigError('there must be at least one group')


def divide(options: Options, request: division.Request) -> division.Division:
  """Divides the examples of each group evenly among its clients.

  Groups have equally many clients, up to one; clients of a group are
  consecutive.

  Raises:
    ConfigError: If the groups do not match the number of classes.
    PartitionError: If there are fewer clients than groups, or a group has
      fewer examples than clients.
  """
  num_classes = len(request.counts)
  groups = _choose_groups(options, num_classes, request.seed)
  if request.num_clients < len(groups):
    raise errors.PartitionError(
      f'partition.num_clients is {request.num_clients} for {len(groups)} '
      'groups; there must be one for each.'
    )
  clusters = np.concatenate(
    [
      mixtures.block_of(count, len(groups))
      for count in (request.num_clients, request.num_unseen)
    ]
  ).astype(np.int32)
  pool_of_class = np.full(num_classes, apportion.NOBODY)
  for g, group in enumerate(groups):
    pool_of_class[list(group)] = g
    division.check_enough(
      f'the group of classes {list(group)}',
      int(request.counts[list(group)].sum()),
      int(np.sum(clusters == g)),
    )
  is_member = clusters[:, None] == np.arange(len(groups))
  return division.Division(
    pool_of_class,
    is_member / is_member.sum(axis=0),
    clusters,
    {'class_groups': [list(group) for group in groups]},
  )


def _choose_groups(
  options: Options, num_classes: int, seed: int
) -> tuple[tuple[int, ...], ...]:
  if options.class_groups is not None:
    largest = max(max(group) for group in options.class_groups)
    if largest >= num_classes:
      raise errors.ConfigError(
        f'partition.options.class_groups names class {largest}; the classes '
        f'are 0 to {num_classes - 1}'
      )
    return options.class_groups
  sizes = checks.check_given('group_sizes', options.group_sizes)
  if sum(sizes) != num_classes:
    raise errors.ConfigError(
      f'partition.options.group_sizes {sizes} must sum to the '
      f'number of classes, {num_classes}'
    )
  generator = random.Random(seed)
  left = list(range(num_classes))
  groups = []
  for size in sizes[:-1]:
    groups.append(tuple(generator.sample(left, size)))
    left = [label for label in left if label not in groups[-1]]
  return (*groups, tuple(left))
