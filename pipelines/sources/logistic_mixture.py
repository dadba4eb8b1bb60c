"""Synthetic source of mixtures of logistic models by client (PPFL).

theta_s ~ U[-1, 1]^d, x ~ U[-1, 1]^d, y = round(sigmoid(<x, theta_s> + noise))
with noise ~ N(0, 0.1^2); client i mixes the components by alpha_i ~ Dir(0.4),
and its n_i = min(floor(lognormal(4, 2)) + 50, 1000) examples are divided among
them by Multinomial(n_i, alpha_i) (Di et al., arXiv 2310.14337, synthetic data,
after Marfoq et al., NeurIPS 2021). The paper splits each client's examples 80
to 20; its code trains on all n_i and tests on 5,000 more of the same mixture.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    num_clients: Clients.
    num_components: Components S.
    num_features: Length d of x.
    concentration: Parameter of the Dirichlet law, from 1e-6 to 1e6.
    noise: Standard deviation of the noise.
    min_examples: Added to the lognormal part of n_i.
    max_examples: Upper bound of n_i.
    num_test_examples: Number of additional examples per client from the same
      mixture, as the official test split; 0 for none.
  """

  num_clients: int = 300
  num_components: int = 3
  num_features: int = 150
  concentration: float = 0.4
  noise: float = 0.1
  min_examples: int = 50
  max_examples: int = 1000
  num_test_examples: int = 0

  def __post_init__(self) -> None:
    checks.check_int('num_clients', self.num_clients, minimum=1)
    checks.check_int('num_components', self.num_components, minimum=1)
    checks.check_int('num_features', self.num_features, minimum=1)
    checks.check_concentration(self.concentration)
    checks.check_at_least('noise', self.noise, 0)
    checks.check_int('min_examples', self.min_examples, minimum=1)
    checks.check_int('num_test_examples', self.num_test_examples, minimum=0)
    if self.max_examples < self.min_examples:
      raise errors.ConfigError(
        f'max_examples must be at least min_examples={self.min_examples}, got '
        f'{self.max_examples!r}'
      )


class Client(NamedTuple):
  """Random draws of a client.

  Attributes:
    mixture: alpha_i, float64 `[num_components]`.
    counts: Examples of each component, int64 `[num_components]`.
    test_counts: The same of the official test split.
  """

  mixture: Array
  counts: Array
  test_counts: Array


class LogisticMixture(base.GeneratedSource):
  """Source with natural clients, for partition scheme `'natural'`."""

  NAME = 'logistic_mixture'

  def features(self) -> base.Features:
    """Returns float32 vectors with two classes."""
    return base.vector_features(self._options.num_features, 2)

  def thetas(self) -> Array:
    """Returns the components, float64 `[num_components, num_features]`."""
    generator = seeds.numpy_generator(self._seed, 'logistic_mixture/thetas')
    shape = (self._options.num_components, self._options.num_features)
    return generator.uniform(-1, 1, shape)

  def client(self, index: int) -> Client:
    """Returns the random draws of a client."""
    return _draw_client(self._options, self._seed, index)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the points of a block; each depends on its place alone."""
    thetas, is_test = self.thetas(), block.part == 'test'
    for run in base.runs(self._client_sizes(block.part), block):
      ends = np.cumsum(self._counts(block.part, run.index))
      for i in range(run.start, run.stop):
        component = int(np.searchsorted(ends, i, side='right'))
        # Test examples use the positions after all training examples.
        place = i + self._options.max_examples * is_test
        x, y = self._point(thetas[component], run.index, place)
        yield base.RawExample(
          x=x,
          y=y,
          is_test=is_test,
          native_source=component,
          client=self._name(run.index),
        )

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns `component_0`, `component_1` and so on."""
    return tuple(f'component_{s}' for s in range(self._options.num_components))

  def has_test_split(self) -> bool:
    """Returns whether clients have additional test examples."""
    return self._options.num_test_examples > 0

  def facts(self) -> Mapping[str, Any]:
    """Returns the thetas and the mixture of each client."""
    return {
      'thetas': self.thetas().tolist(),
      'mixtures': {
        self._name(i): self.client(i).mixture.tolist()
        for i in range(self._options.num_clients)
      },
    }

  def _sizes(self) -> Mapping[str, int]:
    return {part: sum(self._client_sizes(part)) for part in ('all', 'test')}

  def _point(self, theta: Array, index: int, i: int) -> tuple[Array, int]:
    generator = seeds.numpy_generator(
      self._seed, 'logistic_mixture/example', i, str(index)
    )
    x = generator.uniform(-1, 1, self._options.num_features).astype(np.float32)
    noise = generator.normal(0, self._options.noise)
    # A sigmoid rounds to 1 where its argument is positive. fsum rounds once.
    return x, int(math.fsum((*(x * theta), noise)) > 0)

  def _name(self, index: int) -> str:
    return f'client_{index:05d}'

  def _counts(self, part: str, index: int) -> Array:
    client = self.client(index)
    return client.test_counts if part == 'test' else client.counts

  def _client_sizes(self, part: str) -> list[int]:
    return [
      int(self._counts(part, index).sum())
      for index in range(self._options.num_clients)
    ]


@functools.lru_cache(maxsize=4096)
def _draw_client(options: Options, seed: int, index: int) -> Client:
  generator = seeds.numpy_generator(seed, 'logistic_mixture/client', index)
  mixture = generator.dirichlet(
    [options.concentration] * options.num_components
  )
  size = int(generator.lognormal(4, 2)) + options.min_examples
  size = min(size, options.max_examples)
  counts = generator.multinomial(size, mixture)
  test_counts = generator.multinomial(options.num_test_examples, mixture)
  return Client(mixture, counts, test_counts)
