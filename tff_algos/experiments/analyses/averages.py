"""Averages of independently trained models on a loss surface.

Chen and Qiu (2025), arXiv:2503.08652, section 7.1 and Figure 3a: two classes
around [2, 2] and [-2, -2], one linear model w of two weights, the squared error
to +1 and -1. Clients train apart, and their average after each step is a path;
5 clients in factors stand for 25 models. Readings: the covariance of a class is
the identity; a step sees one fresh example; all start from one w.
"""

import os
import pathlib
from typing import Any

import numpy as np

from tff_algos.core import durable, seeds
from tff_algos.experiments import tables
from tff_algos.experiments.analyses import kernel_variance
from tff_algos.reports.plotting import landscape_plot, style

MEAN = np.array([2.0, 2.0])
OPTIMUM = MEAN / 9
_SIZES = (5, 25)
_START = (-0.55, -0.15)
_LEARNING_RATE = 0.01
_NUM_STEPS = 60
_NUM_GRID_POINTS = 81


def loss(w: np.ndarray) -> np.ndarray:
  """Returns E (w.x - y)^2 = |w|^2 + (w.mu - 1)^2.

  Args:
    w: `[..., 2]`.

  Returns:
    `[...]`, at least 1/9.
  """
  w = np.asarray(w)
  return np.sum(w**2, axis=-1) + (w @ MEAN - 1) ** 2


def average_paths(
  num_models: int,
  num_paths: int,
  num_steps: int,
  *,
  start: np.ndarray,
  learning_rate: float,
  generator: np.random.Generator,
) -> np.ndarray:
  """Returns the average of models that are trained apart, after each step.

  Args:
    num_models: In each average, >= 1.
    num_paths: Averages, each of models of its own.
    num_steps: Of SGD on (w.x - y)^2, each with one example.
    start: Of all models, `[2]`.
    learning_rate: > 0.
    generator: Source of randomness.

  Returns:
    float64 `[num_paths, num_steps + 1, 2]`; the first is `start`.
  """
  models = np.tile(np.asarray(start, np.float64), (num_paths, num_models, 1))
  path = [models.mean(axis=1)]
  for _ in range(num_steps):
    y = generator.choice([-1.0, 1.0], size=(num_paths, num_models))
    x = y[..., None] * MEAN + generator.normal(size=models.shape)
    errors = np.sum(models * x, axis=-1) - y
    models = models - learning_rate * 2 * errors[..., None] * x
    path.append(models.mean(axis=1))
  return np.stack(path, axis=1)


def draw(
  num_paths: int, seed: int, folder: str | os.PathLike[str]
) -> list[dict[str, Any]]:
  """Writes the picture and the tables; returns the rows of the variances.

  Args:
    num_paths: Number of averages of each size, >= 2.
    seed: Random seed.
    folder: Output folder; created if missing.
  """
  workdir = pathlib.Path(folder)
  paths = {
    size: average_paths(
      size,
      num_paths,
      _NUM_STEPS,
      start=np.array(_START),
      learning_rate=_LEARNING_RATE,
      generator=seeds.numpy_generator(seed, 'averages', size),
    )
    for size in _SIZES
  }
  shown = [
    {
      'models': size,
      'step': step,
      'x': place[0],
      'y': place[1],
      'loss': float(loss(place)),
    }
    for size in _SIZES
    for step, place in enumerate(paths[size][0])
  ]
  tables.write_table(workdir / 'averages.csv', shown)
  rows = [_variances(paths, step) for step in range(_NUM_STEPS + 1)]
  tables.write_table(workdir / 'averages_variance.csv', rows)
  with style.applied():
    png = style.to_png(_figure(paths))
  with durable.replacing(workdir / 'averages.png', 'wb') as file:
    file.write(png)
  return rows


def _variances(paths, step):
  row = {'step': step}
  for size, one in paths.items():
    found = kernel_variance.estimate(one[:, step])
    row[f'variance_{size}'] = found.variance
    row[f'loss_{size}'] = float(loss(one[:, step]).mean())
  return row


def _figure(paths):
  places = np.concatenate([one[0] for one in paths.values()])
  sides = [
    np.linspace(low - 0.15, high + 0.15, _NUM_GRID_POINTS)
    for low, high in zip(places.min(axis=0), places.max(axis=0), strict=True)
  ]
  losses = loss(np.stack(np.meshgrid(*sides), axis=-1))
  return landscape_plot.draw(
    landscape_plot.Surface(sides[0], sides[1], losses),
    [
      landscape_plot.Path(
        f'average of {size} models, {_NUM_STEPS} steps', one[0]
      )
      for size, one in paths.items()
    ],
    'Averages of independently trained models, step by step',
    ['first weight', 'second weight'],
    mark=tuple(OPTIMUM),
  )
