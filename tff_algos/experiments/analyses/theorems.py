"""Linear-regression data in float64 for analyses of convergence theorems."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tff_algos.data import schema
from tff_algos.experiments import experiment, session


class Analysis(NamedTuple):
  """The comparison of a run with the theorems of its algorithm's paper.

  Attributes:
    columns: Meaning of each printed column by name.
    measure: Session, options of the algorithm, whether the linear regression
      has an intercept -> rows of `evaluation/bounds.csv`.
    check: Raises ConfigError if the theorems do not apply to an experiment;
      called before a session is opened.
  """

  columns: Mapping[str, str]
  measure: Callable[[session.Session, Any, bool], list[dict[str, Any]]]
  check: Callable[[experiment.ExperimentConfig], None]


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
