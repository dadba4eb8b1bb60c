"""The report: pictures and an index page, written so that none is half-made."""

import os
import pathlib
import tempfile
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import jinja2
from matplotlib.backends import backend_agg

from tff_algos.reports import (
  accuracy_plot,
  centers_plot,
  clients_plot,
  cost_plot,
  memberships_plot,
  recovery_plot,
  style,
  summary,
)
from tff_algos.reports import run as run_lib

_INDEX = 'index.html'
_TEMPLATE = pathlib.Path(__file__).with_name('page.html.jinja')


class Picture(NamedTuple):
  """A picture of the report.

  Attributes:
    name: Its file name.
    module: Its `draw` takes a Run and returns a Figure, or None if the run has
      nothing to draw.
    caption: How to read it.
  """

  name: str
  module: types.ModuleType
  caption: str


PICTURES = (
  Picture(
    'accuracy.png',
    accuracy_plot,
    'Every cluster model on held-out examples of each source distribution, in '
    'the colour of the source that it stands for; thick: the best at the end. '
    "Last panel: the clients' own test examples. Dotted: always saying the "
    "commonest label of the client's training part.",
  ),
  Picture(
    'memberships.png',
    memberships_plot,
    'The importance weights that the server holds for each participating '
    'client beside the mixture that its data was drawn from. Clusters have no '
    'order of their own; each is matched to a source so that all clients '
    'together agree best.',
  ),
  Picture(
    'centers.png',
    centers_plot,
    'Every cluster model on every source distribution at the last evaluation. '
    'One dark cell in each column, each in another row: the clusters have '
    'specialised.',
  ),
  Picture(
    'clients.png',
    clients_plot,
    "Each client's personalized model beside its cluster's model, on the "
    "client's own test examples. The worst decile is the mean of the worst "
    '10 % of the clients; triangles mark it.',
  ),
  Picture(
    'cost.png',
    cost_plot,
    'What the communication bought: numbers sent from the server to clients '
    'and back, summed over rounds.',
  ),
  Picture(
    'recovery.png',
    recovery_plot,
    "Left: each client's main cluster against its main source; ARI (adjusted "
    'Rand index) is about 0 by chance, NMI (normalized mutual information) '
    'and purity lie between 0 and 1. Right: the mean absolute difference of '
    'importance weights and true shares.',
  ),
)

_PLACES = (
  ('config.json', 'the config, resolved, and its hash'),
  ('dataset', 'the federated dataset'),
  ('metrics.csv', 'all metrics, one row a round'),
  ('tensorboard', 'the same for TensorBoard'),
  ('evaluation/summary.json', 'last round, best round and majority class'),
  ('evaluation/clients.csv', 'one row a client'),
  ('checkpoints', 'server and client states'),
  ('export/cluster_models', 'SavedModels of the clusters, for new users'),
  ('export/personalized_models', 'SavedModels for known clients'),
)


def write_report(workdir: str | os.PathLike[str]) -> pathlib.Path:
  """Draws a run's pictures and writes its index page.

  Reads only files of the run. Everything is made beside its place and then
  moved there, the page last; a report that was there before is replaced. The
  same files give the same bytes.

  Args:
    workdir: The folder of a run that was trained and evaluated.

  Returns:
    `<workdir>/report/index.html`.

  Raises:
    DataError: If a file is missing or damaged; names it, and the command that
      makes it.
  """
  run = run_lib.read(workdir)
  report = run.workdir / 'report'
  with tempfile.TemporaryDirectory(
    prefix='.report-', dir=run.workdir
  ) as temporary:
    made = pathlib.Path(temporary)
    pictures = [picture for picture in PICTURES if _draw(picture, run, made)]
    (made / _INDEX).write_text(_render(run, pictures), encoding='utf-8')
    report.mkdir(exist_ok=True)
    for picture in pictures:
      os.replace(made / picture.name, report / picture.name)
    os.replace(made / _INDEX, report / _INDEX)
  for picture in PICTURES:
    if picture not in pictures:
      (report / picture.name).unlink(missing_ok=True)
  return report / _INDEX


def _draw(picture: Picture, run: run_lib.Run, folder: pathlib.Path) -> bool:
  """Writes a picture; returns whether there was something to draw."""
  with style.applied():
    figure = picture.module.draw(run)
    if figure is None:
      return False
    canvas = backend_agg.FigureCanvasAgg(figure)
    canvas.print_png(folder / picture.name)
  return True


def _render(run: run_lib.Run, pictures: list[Picture]) -> str:
  environment = jinja2.Environment(
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  template = environment.from_string(_TEMPLATE.read_text(encoding='utf-8'))
  return template.render(
    run=run,
    heading=summary.heading(run),
    measure=style.score_label(run).partition(' (')[0],
    rows=summary.rows(run),
    warnings=summary.warnings(run),
    pictures=pictures,
    places=[
      (name, what) for name, what in _PLACES if (run.workdir / name).exists()
    ],
    settings=list(_flat(run.config)),
  )


def _flat(section: Mapping[str, Any], prefix: str = ''):
  """Yields (dotted key, value as text) of a nested config."""
  for key, value in section.items():
    if isinstance(value, Mapping) and value:
      yield from _flat(value, f'{prefix}{key}.')
    else:
      yield f'{prefix}{key}', str(value)
