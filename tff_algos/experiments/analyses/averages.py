r"""Draws averages of few and of many models on a loss surface.

  python -m binaries.averages --workdir=runs/averages

is Figure 3a of Chen and Qiu (2025), arXiv:2503.08652: linear models of two weights on
two Gaussian classes, trained apart by SGD; the paths of the averages of 5 and of 25 of
them, which is what five clients have with latent ones. Nothing of it is federated.
Into --workdir go averages.png, with the first path of each; averages.csv, `models`,
`step`, `x`, `y` and `loss` of these; and averages_variance.csv, at each step the
variance over --num_paths averages of each size, and the mean loss.
"""

import pathlib
from typing import Any

import numpy as np
from absl import flags

from binaries import bounds, command
from tff_algos.algorithms.filter_decomposition import (
  averaged_models,
  kernel_variance,
)
from tff_algos.core import seeds
from tff_algos.experiments import output
from tff_algos.reports.plotting import landscape_plot, style

_SIZES = (5, 25)
_START = (-0.55, -0.15)
_LEARNING_RATE = 0.01
_NUM_STEPS = 60
_NUM_GRID_POINTS = 81


def draw(num_paths: int, seed: int, folder: str) -> list[dict[str, Any]]:
  """Writes the picture and the tables; returns the rows of the variances.

  Args:
    num_paths: Averages of each size, >= 2.
    seed: Of all draws.
    folder: Is made.
  """
  workdir = pathlib.Path(folder)
  workdir.mkdir(parents=True, exist_ok=True)
  paths = {
    size: averaged_models.average_paths(
      *(size, num_paths, _NUM_STEPS),
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
  output.write_table(workdir / 'averages.csv', shown)
  rows = [_variances(paths, step) for step in range(_NUM_STEPS + 1)]
  output.write_table(workdir / 'averages_variance.csv', rows)
  with style.applied():
    (workdir / 'averages.png').write_bytes(style.to_png(_figure(paths)))
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
    landscape_plot.Surface(*sides, losses),
    [
      landscape_plot.Path(
        f'average of {size} models, {_NUM_STEPS} steps', one[0]
      )
      for size, one in paths.items()
    ],
    'Averages of models that are trained apart, step by step',
    ['first weight', 'second weight'],
    mark=tuple(averaged_models.OPTIMUM),
  )


def _main() -> None:
  workdir = flags.DEFINE_string('workdir', None, 'Where to write.')
  seed = flags.DEFINE_integer('seed', 0, 'Of all draws.', lower_bound=0)
  num_paths = flags.DEFINE_integer(
    'num_paths', 1000, 'Averages of each size.', lower_bound=2
  )
  flags.mark_flag_as_required('workdir')

  def main() -> None:
    rows = draw(num_paths.value, seed.value, workdir.value)
    print(bounds.table(rows[::10], tuple(rows[0])))

  command.run(main)


if __name__ == '__main__':
  _main()
