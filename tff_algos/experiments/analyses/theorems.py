"""Linear-regression data in float64 for analyses of convergence theorems."""

from typing import Any

import numpy as np

from tff_algos.data import schema
from tff_algos.experiments import session


def rows_of(
  examples: schema.Examples, use_bias: bool
) -> tuple[np.ndarray, np.ndarray]:
  """Returns x `[n, d]`, with a last column of ones for an intercept, and y."""
  x = examples.x.reshape(examples.num_examples, -1)
  ones = np.ones([len(x), int(use_bias)])
  return np.concatenate([x, ones], axis=1), examples.y


def training_rows(
  opened: session.Session, use_bias: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns `rows_of` the training examples of each non-empty client."""
  population = opened.source.population
  ids = population.client_ids
  return [
    rows_of(opened.dataset.examples(ids[client], schema.TRAIN), use_bias)
    for client in population.clients_with_examples
  ]


def vectors(weights: Any) -> np.ndarray:
  """Returns stacked weights as float64 `[..., d]`, the intercept last."""
  leaves = [np.asarray(weights['kernel'], np.float64)[..., 0]]
  if 'bias' in weights:
    leaves.append(np.asarray(weights['bias'], np.float64))
  return np.concatenate(leaves, axis=-1)
