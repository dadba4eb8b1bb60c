"""Synthetic source of client groups with softmax models (pFedKM).

Client k of group g draws B_k ~ N(offset_g, beta), the mean v_k ~ N(B_k, 1) of
its features, x ~ N(v_k, Sigma) with Sigma_jj = j^-1.2, and weights W_k and
biases b_k ~ N(mu_k, 1); y = argmax(W_k^T x + b_k). n_k =
floor(lognormal(4, 2)) + 50 (Tang, Guo and Guo, "Personalized Federated
Learning with Clustered Generalization", 2021, section "Experiments", after
FedProx's generator, Li et al., MLSys 2020).

mu_k adds the same number to all logits, so it changes no label.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.sources import base
from tff_algos.core import checks, seeds
from tff_algos.core.structures import Array


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the generator.

  Attributes:
    num_groups: Groups; their offsets lie 3 * beta apart around 0.
    num_clients_per_group: Clients of each.
    num_features: Length of x.
    num_classes: Classes.
    alpha: mu_k = alpha / beta * B_k.
    beta: Standard deviation of B_k, > 0.
    min_examples: Added to the lognormal part of n_k.
    max_examples: Upper bound of n_k; None for no limit.
  """

  num_groups: int = 3
  num_clients_per_group: int = 20
  num_features: int = 60
  num_classes: int = 10
  alpha: float = 0.5
  beta: float = 0.5
  min_examples: int = 50
  max_examples: int | None = None

  def __post_init__(self) -> None:
    checks.check_int('num_groups', self.num_groups, minimum=1)
    checks.check_int(
      'num_clients_per_group', self.num_clients_per_group, minimum=1
    )
    checks.check_int('num_features', self.num_features, minimum=1)
    checks.check_int('num_classes', self.num_classes, minimum=2)
    checks.check_at_least('alpha', self.alpha, 0)
    checks.check_positive('beta', self.beta)
    checks.check_int('min_examples', self.min_examples, minimum=1)
    if self.max_examples is not None:
      checks.check_int('max_examples', self.max_examples, minimum=1)


class Client(NamedTuple):
  """Random draws of a client.

  Attributes:
    group: Its group.
    offset: B_k.
    mean: v_k, float64 `[num_features]`.
    weights: W_k, float64 `[num_features, num_classes]`.
    biases: b_k, float64 `[num_classes]`.
    num_examples: n_k.
  """

  group: int
  offset: float
  mean: Array
  weights: Array
  biases: Array
  num_examples: int


class SoftmaxGroups(base.GeneratedSource):
  """Source with natural clients, for partition scheme `'natural'`."""

  NAME = 'softmax_groups'

  def features(self) -> base.Features:
    """Returns float32 vectors with classes."""
    return base.vector_features(
      self._options.num_features, self._options.num_classes
    )

  def client(self, index: int) -> Client:
    """Returns the random draws of a client; clients are numbered by group."""
    return _draw_client(self._options, self._seed, index)

  def read(self, block: base.Block) -> Iterator[base.RawExample]:
    """Yields the points of a block; each depends on its place alone."""
    deviations = _deviations(self._options.num_features)
    for run in base.runs(self._client_sizes(), block):
      client = self.client(run.index)
      for i in range(run.start, run.stop):
        generator = seeds.numpy_generator(
          self._seed, 'softmax_groups/example', i, str(run.index)
        )
        noise = generator.standard_normal(self._options.num_features)
        x = (client.mean + deviations * noise).astype(np.float32)
        logits = x.astype(np.float64) @ client.weights + client.biases
        yield base.RawExample(
          x=x,
          y=int(np.argmax(logits)),
          native_source=client.group,
          client=self._name(run.index),
        )

  def native_source_names(self) -> tuple[str, ...] | None:
    """Returns `group_0`, `group_1` and so on."""
    return tuple(f'group_{g}' for g in range(self._options.num_groups))

  def facts(self) -> Mapping[str, Any]:
    """Returns the B_k of each client."""
    return {
      'offsets': {
        self._name(i): self.client(i).offset
        for i in range(len(self._client_sizes()))
      }
    }

  def _sizes(self) -> Mapping[str, int]:
    return {'all': sum(self._client_sizes())}

  def _name(self, index: int) -> str:
    group, rank = divmod(index, self._options.num_clients_per_group)
    return f'group_{group}_client_{rank:03d}'

  def _client_sizes(self) -> list[int]:
    options = self._options
    count = options.num_groups * options.num_clients_per_group
    return [self.client(index).num_examples for index in range(count)]


def _deviations(num_features: int) -> Array:
  """Returns the roots of Sigma_jj = j^-1.2, j from 1."""
  return np.array([j**-0.6 for j in range(1, num_features + 1)])


@functools.lru_cache(maxsize=1024)
def _draw_client(options: Options, seed: int, index: int) -> Client:
  generator = seeds.numpy_generator(seed, 'softmax_groups/client', index)
  group = index // options.num_clients_per_group
  center = 3 * options.beta * (group - (options.num_groups - 1) / 2)
  offset = generator.normal(center, options.beta)
  mean = generator.normal(offset, 1, options.num_features)
  shape = (options.num_features, options.num_classes)
  model_mean = options.alpha / options.beta * offset
  size = int(generator.lognormal(4, 2)) + options.min_examples
  if options.max_examples is not None:
    size = min(size, options.max_examples)
  return Client(
    group=group,
    offset=offset,
    mean=mean,
    weights=model_mean + generator.standard_normal(shape),
    biases=model_mean + generator.standard_normal(options.num_classes),
    num_examples=size,
  )
