"""Partition of consecutive classes with log-normal sizes (pFedMe's generator).

CGPFL (Tang, Guo and Guo, 2021) has 40 clients with 3 of 10 classes each, and
510 to 4410 examples on CIFAR-10. The generator published with pFedMe (arXiv
2006.08848) gives 510 to 4413 for seed 1; so it is reproduced here number by
number, including its two random generators.
"""

import dataclasses
import random

import numpy as np

from pipelines.partitions import division
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

# Least number of examples of a client and class.
_BASE = 10


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'consecutive_classes'`.

  Attributes:
    classes_per_client: Client k has classes k, k + 1, ... modulo their number.
    offset: Added to every further quota of a client and class.
    reserve: Examples of each class that are not available to the quotas.
  """

  classes_per_client: int = 3
  offset: int = 200
  reserve: int = 40

  def __post_init__(self) -> None:
    checks.check_int('classes_per_client', self.classes_per_client, minimum=1)
    checks.check_int('offset', self.offset, minimum=0)
    checks.check_int('reserve', self.reserve, minimum=0)


def divide(options: Options, request: division.Request) -> division.Division:
  """Draws every client's examples of each of its classes.

  A quota above the remaining examples of a class is dropped; that client keeps
  its first 10 examples of the class. Clients with the same classes form one
  ground-truth cluster.

  Raises:
    PartitionError: If a class has fewer examples than its first quotas need.
  """
  counts, num_clients = request.counts, request.everyone
  num_classes = len(counts)
  division.check_num_classes(
    'classes_per_client', options.classes_per_client, counts
  )
  labels = (
    np.add.outer(np.arange(num_clients), np.arange(options.classes_per_client))
    % num_classes
  )
  taken = _BASE * np.bincount(labels.ravel(), minlength=num_classes)
  for label in np.flatnonzero(counts < np.maximum(taken, options.reserve)):
    raise errors.PartitionError(
      f'class {label} has {counts[label]} examples; the first {_BASE} of each '
      f'client take {taken[label]}, and partition.options.reserve is '
      f'{options.reserve}. Lower the number of clients or reserve.'
    )
  got = np.zeros((num_clients, num_classes), np.int64)
  np.put_along_axis(got, labels, _BASE, axis=1)
  num_refused = 0
  further = _draw_further(options, counts, num_clients, request.seed)
  for k, j in np.ndindex(labels.shape):
    label = labels[k, j]
    if taken[label] + further[k, j] < counts[label]:
      taken[label] += further[k, j]
      got[k, label] += further[k, j]
    else:
      num_refused += 1
  return division.Division(
    division.by_class(num_classes),
    got / np.maximum(counts, 1),
    (np.arange(num_clients) % num_classes).astype(np.int32),
    {'num_refused_quotas': num_refused},
  )


def _draw_further(
  options: Options, counts: Array, num_clients: int, seed: int
) -> Array:
  """Returns the further quotas, int64 `[num_clients, classes_per_client]`."""
  shape = (num_clients, options.classes_per_client)
  weights = np.random.RandomState(seed % 2**32).lognormal(
    0, 2.0, (len(counts), *shape)
  )
  total = weights.sum(axis=(1, 2), keepdims=True)
  parts = (counts - options.reserve)[:, None, None] * weights / total
  # As published: the weights of a class are divided over ten runs of clients.
  run_length = max(1, num_clients // len(counts))
  generator = random.Random(seed)
  further = np.zeros(shape, np.int64)
  for k, j in np.ndindex(shape):
    part = int(parts[(k + j) % len(counts), k // run_length, j])
    least, factor = generator.randint(10, 200), generator.randint(1, 10)
    further[k, j] = part * factor + least + options.offset
  return further
