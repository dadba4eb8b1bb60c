"""Averages of independently trained models on a loss surface.

Figure 3a of Chen and Qiu (2025), arXiv:2503.08652: linear models of two weights
on two Gaussian classes, each trained by SGD, and the paths of averages of 5 and
of 25 of them.
"""

import os
import pathlib
from typing import Any

import numpy as np

from tff_algos.algorithms.filter_decomposition import (
  averaged_models,
  kernel_variance,
)
from tff_algos.core import durable, seeds
from tff_algos.experiments import tables
from tff_algos.reports.plotting import landscape_plot, style

_SIZES = (5, 25)
_START = (-0.55, -0.15)
_LEARNING_RATE = 0.01
_NUM_STEPS = 60
_NUM_GRID_POINTS = 81


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
    size: averaged_models.average_paths(
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
      'loss': float(averaged_models.loss(place)),
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
    row[f'loss_{size}'] = float(averaged_models.loss(one[:, step]).mean())
  return row


def _figure(paths):
  places = np.concatenate([one[0] for one in paths.values()])
  sides = [
    np.linspace(low - 0.15, high + 0.15, _NUM_GRID_POINTS)
    for low, high in zip(places.min(axis=0), places.max(axis=0), strict=True)
  ]
  losses = averaged_models.loss(np.stack(np.meshgrid(*sides), axis=-1))
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
    mark=tuple(averaged_models.OPTIMUM),
  )
