"""Training trajectories of runs in weight space, read from checkpoints."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import errors, seeds
from tff_algos.experiments import experiment, resolved_config, session
from tff_algos.experiments.analyses import refusals
from tff_algos.models.factors import decomposition
from tff_algos.numerics import factored_weights, trees
from tff_algos.runtimes import registry as runtimes


class Trajectory(NamedTuple):
  """The server models in the checkpoints of a run.

  Attributes:
    label: Name of the run.
    rounds: 0, unless the run continues another one, and the rounds of the
      checkpoints, ascending.
    points: All weights, with factorized kernels multiplied out, float32
      `[num_rounds, n]`.
  """

  label: str
  rounds: tuple[int, ...]
  points: np.ndarray


class Problem(NamedTuple):
  """Trajectories in one weight space, and the loss on it.

  Attributes:
    trajectories: At least one; all networks have the same weights.
    loss: Weights `[n]` -> mean loss of the sampled examples.
  """

  trajectories: Sequence[Trajectory]
  loss: Callable[[np.ndarray], float]


def read(
  folders: Sequence[str | os.PathLike[str]], num_examples: int
) -> Problem:
  """Reads the kept checkpoints of runs, and a sample of the training examples.

  Args:
    folders: Folders of trained runs on one dataset, each with one server model.
    num_examples: Maximum number of examples, sampled uniformly over all clients
      by the first run's seed.

  Raises:
    UserError: If a run has no checkpoint or no single model, is private or has
      low-rank kernels, or the runs' data or networks differ.
  """
  if not folders:
    raise errors.ConfigError('--runs names no run; give one folder or several')
  parents = [pathlib.Path(one).absolute().parent for one in folders]
  start = os.path.commonpath(parents)
  trajectories, first = [], None
  for folder in folders:
    label = os.path.relpath(folder, start)
    # The runs may be of other machines or versions. No round is computed, but
    # the runtime refuses algorithms with aggregation processes of TFF.
    config = resolved_config.read(folder, runtimes.RuntimeConfig())
    refusals.check_not_private(config, f'{label}: binaries.landscape')
    refusals.check_not_low_rank(config, f'{label}: binaries.landscape')
    with session.open_session(config, folder) as opened:
      trajectory, shapes = _trajectory(opened, label)
      version = opened.dataset.version
      if first is None:
        first = version, shapes
        loss = _build_loss(opened, num_examples)
      _check_alike(label, first, (version, shapes))
    trajectories.append(trajectory)
  return Problem(trajectories, loss)  # pyright: ignore[reportPossiblyUnboundVariable]


def _trajectory(opened, label):
  rounds, points = [], []
  for round_num, state in opened.saved_states():
    if not hasattr(state, 'model_weights'):
      raise errors.ConfigError(
        f'{label}: config.algorithm.name is {opened.algorithm.name!r}, which '
        'has no single server model; choose runs of one that has'
      )
    plain = factored_weights.build_kernels(state.model_weights)
    rounds.append(round_num)
    points.append(trees.flatten(plain).numpy())
  shapes = {name: tuple(leaf.shape) for name, leaf in plain.items()}  # pyright: ignore[reportPossiblyUnboundVariable]
  return Trajectory(label, tuple(rounds), np.stack(points)), shapes


def _check_alike(label, first, other):
  if first[0] != other[0]:
    raise errors.ConfigError(
      f'{label} was trained on dataset {other[0]}, the first run on '
      f'{first[0]}; name runs on one dataset'
    )
  if first[1] != other[1]:
    name = min({*first[1].items()} ^ {*other[1].items()})[0]
    raise errors.ConfigError(
      f'{label} has another network than the first run: weight {name!r} is not '
      'the same; name runs whose networks have the same kernels'
    )


def _build_loss(opened, num_examples):
  options = opened.config.model.options
  if isinstance(options, decomposition.DecomposableConfig):
    ordinary = dataclasses.replace(options.decomposition, num_atoms=0)
    options = dataclasses.replace(options, decomposition=ordinary)
  config = dataclasses.replace(
    opened.config, model=opened.config.model._replace(options=options)
  )
  dataset = opened.dataset
  model = experiment.build_model(config, dataset.schema, dataset.feature_spec)
  spec = model.weights_spec()
  x, y = map(tf.constant, _sample(opened, num_examples))

  @tf.function(autograph=False)
  def loss(point):
    outputs = model.apply(trees.unflatten(point, spec), x)
    return tf.reduce_mean(model.example_losses(outputs, y))

  return lambda point: float(loss(tf.constant(point, tf.float32)))


def _sample(opened, num_examples):
  """Returns features and labels of a uniform sample over all clients."""
  counts = np.asarray(opened.source.population.num_examples)
  total, ends = int(counts.sum()), np.cumsum(counts)
  generator = seeds.numpy_generator(opened.config.seed, 'landscape', 0)
  chosen = np.sort(
    generator.choice(total, min(num_examples, total), replace=False)
  )
  owners = np.searchsorted(ends, chosen, side='right')
  rows = chosen - (ends - counts)[owners]
  parts = []
  for owner in np.unique(owners):
    examples = opened.source.examples(int(owner))
    own = rows[owners == owner]
    parts.append((examples.x[own], examples.y[own]))
  return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
