"""Dirichlet partition: shares of each class drawn for the clients.

Yurochkin et al. (arXiv 1905.12022), section 4; named by the
filter-decomposition paper (arXiv 2503.08652).
"""

import dataclasses

import numpy as np

from pipelines.partitions import apportion, division
from tff_algos.core import checks, errors, seeds

_MAX_DRAWS = 100


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of scheme `'dirichlet'`.

  Attributes:
    concentration: Parameter of the symmetric Dirichlet distribution over the
      clients, from 1e-6 to 1e6. Small: each class is concentrated on few
      clients; large: spread over all.
    min_examples: Least number of training examples per client; the draw is
      repeated until it is met, at most 100 times.
  """

  concentration: float
  min_examples: int = 1

  def __post_init__(self) -> None:
    checks.check_concentration(self.concentration)
    checks.check_int('min_examples', self.min_examples, minimum=0)


def divide(options: Options, request: division.Request) -> division.Division:
  """Draws the clients' shares of each class; all examples are assigned.

  Raises:
    PartitionError: If there are too few examples for `min_examples` each, or
      no draw met it.
  """
  counts, num_clients = request.counts, request.everyone
  if options.min_examples * num_clients > counts.sum():
    raise errors.PartitionError(
      f'partition.options.min_examples is {options.min_examples} for each of '
      f'{num_clients} clients and there are only {counts.sum()} training '
      'examples; lower it, or the number of clients.'
    )
  generator = seeds.numpy_generator(request.seed, 'partition/dirichlet')
  smallest = -1
  for draw in range(1, _MAX_DRAWS + 1):
    shares = generator.dirichlet(
      np.full(num_clients, options.concentration), size=len(counts)
    ).T
    sizes = apportion.apportion(shares, counts).sum(axis=1)
    if sizes.min() >= options.min_examples:
      return division.Division(
        division.by_class(len(counts)), shares, facts={'num_draws': draw}
      )
    smallest = max(smallest, int(sizes.min()))
  raise errors.PartitionError(
    f'in {_MAX_DRAWS} draws with concentration {options.concentration:g} '
    f'at least one of {num_clients} clients had fewer than '
    f'{options.min_examples} training examples, {smallest} at best. Raise '
    'partition.options.concentration, or lower min_examples or the number of '
    'clients.'
  )
