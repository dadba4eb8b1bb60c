r"""Nights of the simulated fortnight: three policies of retraining.

  python -m docs.examples.fortnight_nights --folder=runs/fortnight

runs configs/<algorithm>/fortnight.py on the data of docs/examples/fortnight.py,
for each algorithm and seed in a folder of its own, and asks the served models
after each night. The policies:

  continued  `binaries.nightly`: continues the run whose models are served
  anew       the same dataset, gate and number of rounds, without a parent
  never      the models of the first night are served for ever

Accuracy is that of the served models on the rows of the next day, the mean over
its clients: the later half of a client's rows is scored, by its personalized
model if there is one, else by the cluster model with the lowest loss on the
earlier half.

Writes nights.csv and nights.png of all results in the folder, and prints them.
An algorithm and a seed that are in the folder already are not run again.
"""

import argparse
import csv
import importlib
import itertools
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import figure as figure_lib

from docs.examples import fortnight
from pipelines.scoring import bundles, model_choice
from tff_algos.core import durable, errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import experiment, tables, training
from tff_algos.experiments.production import (
  gate_record,
  gate_scores,
  gating,
  nightly,
  releasing,
)
from tff_algos.reports.plotting import style

ALGORITHMS = ('fed_soft', 'ifca', 'ppfl')
POLICIES = CONTINUED, ANEW, NEVER = ('continued', 'anew', 'never')
RELEASED, NOT_APPROVED, BAD_INPUT, KEPT = (
  'released',
  'not_approved',
  'bad_input',
  'kept',
)
TABLE = 'nights.csv'
_EVENTS = {
  fortnight.SPLIT_DAY: 'a cluster splits',
  fortnight.POISONED_DAY: 'poisoned',
  fortnight.EMPTY_DAY: 'no data',
  fortnight.BAD_DAY: 'bad file',
}
_PANEL_INCHES = 2.3


class Night(NamedTuple):
  """A day of a policy: a row of nights.csv.

  Attributes:
    algorithm: Name of the algorithm.
    seed: Seed of the data and of training.
    day: From 1 to 14.
    policy: One of `POLICIES`.
    status: `'released'`, `'not_approved'` (by the gate), `'no_new_data'`,
      `'bad_input'`, or `'kept'` if nothing was to be trained.
    version: Served version.
    accuracy: Of the served models on the next day, in [0, 1].
    seconds: Wall time of the rounds that were trained, tracing included.
    downlink_floats: Numbers sent to clients in these rounds.
    uplink_floats: Numbers sent by clients.
  """

  algorithm: str
  seed: int
  day: int
  policy: str
  status: str
  version: int
  accuracy: float
  seconds: float = 0.0
  downlink_floats: int = 0
  uplink_floats: int = 0


class Fortnight:
  """The fortnight of one config under all policies, day by day.

  Attributes:
    config: The experiment.
    production: Production folder of `nightly.run`.
  """

  def __init__(
    self,
    algorithm: str,
    folder: pathlib.Path,
    seed: int,
    policies: Sequence[str] = POLICIES,
  ):
    """Starts before the first day.

    Args:
      algorithm: Name of the algorithm.
      folder: For raw data, and the runs of all policies; empty.
      seed: Of the data and of training.
      policies: `CONTINUED`, and others of `POLICIES`.
    """
    module = importlib.import_module(f'configs.{algorithm}.fortnight')
    values = module.get_config()
    values.dataset.source.options.path = os.fspath(folder / 'raw' / '*.csv')
    values.seed = seed
    self.config = experiment.parse(values)
    self.production = folder / 'production'
    self._algorithm = algorithm
    self._raw = folder / 'raw'
    self._anew = folder / ANEW
    self._seed = seed
    self._policies = policies
    self._served: dict[str, gate_scores.Exported] = {}

  def run(self, day: int) -> list[Night]:
    """Runs the night of a day; returns a row for each policy."""
    fortnight.write(self._raw, day, self._seed)
    date = fortnight.date_of(day)
    status = _status(lambda: self._continue(date))
    run = self.production / nightly.RUNS / date
    statuses = {CONTINUED: status, ANEW: status, NEVER: KEPT}
    runs = {CONTINUED: run, ANEW: self._anew / nightly.RUNS / date}
    if ANEW in self._policies and run.exists():
      statuses[ANEW] = _status(lambda: self._start_anew(run, runs[ANEW]))
    for policy, root in ((CONTINUED, self.production), (ANEW, self._anew)):
      if policy in self._policies and statuses[policy] == RELEASED:
        self._served[policy] = self._load(root)
    if NEVER not in self._served:
      self._served[NEVER] = self._served[CONTINUED]
      statuses[NEVER], runs[NEVER] = status, run
    return [
      Night(
        self._algorithm,
        self._seed,
        day,
        policy,
        statuses[policy],
        self._served[policy].found[0].version,
        self.accuracy(policy, day + 1),
        *(_costs(runs[policy]) if policy in runs else ()),
      )
      for policy in self._policies
    ]

  def accuracy(self, policy: str, day: int) -> float:
    """Returns the accuracy of a policy's served models on the rows of a day."""
    rows = itertools.groupby(
      fortnight.rows_of(day, self._seed), lambda row: row['client']
    )
    return statistics.fmean(
      self._client_accuracy(self._served[policy], client_id, list(group))
      for client_id, group in rows
    )

  def _continue(self, date: str) -> str:
    return nightly.run(self.config, self.production, date)['status']

  def _start_anew(self, continued: pathlib.Path, run: pathlib.Path) -> str:
    """Trains on the dataset of another run, without a parent; releases it."""
    durable.make_folder(run)
    (run / 'dataset').symlink_to((continued / 'dataset').resolve())
    training.train(self.config, run)
    export = self._anew / nightly.EXPORT
    gate_record.require_blessed(gating.gate(self.config, run, export))
    releasing.release(self.config, run, export)
    return RELEASED

  def _load(self, root: pathlib.Path) -> gate_scores.Exported:
    """Returns the models that are served from a production folder."""
    with dataset_lib.FederatedDataset.open(
      self.production / 'dataset'
    ) as dataset:
      return gate_scores.load(
        bundles.find(
          root / nightly.EXPORT,
          gate_scores.SCORING,
          {},
          dataset.schema,
          dataset.feature_spec,
        )
      )

  def _client_accuracy(
    self,
    served: gate_scores.Exported,
    client_id: str,
    rows: Sequence[dict[str, str]],
  ) -> float:
    x = np.array(
      [[float(row[name]) for name in fortnight.FEATURES] for row in rows],
      np.float32,
    )
    y = np.array(
      [fortnight.CLASSES.index(row['label']) for row in rows], np.int32
    )
    half = len(rows) // 2
    choice = model_choice.choose(
      client_id, gate_scores.SCORING, served.known, {}
    )
    answer = served.loaded.answer(
      bundles.Request(
        client_id, choice, x[half:], y[half:], x[:half], y[:half]
      ),
      len(rows),
    )
    return float(np.mean(answer.outputs['logits'].argmax(axis=1) == y[half:]))


def run(algorithm: str, folder: pathlib.Path, seed: int) -> None:
  """Runs a whole fortnight, and writes its nights.csv.

  Args:
    algorithm: Name of the algorithm.
    folder: Removed and made again, unless it has a nights.csv.
    seed: Of the data and of training.
  """
  if (folder / TABLE).exists():
    return
  shutil.rmtree(folder, ignore_errors=True)
  opened = Fortnight(algorithm, folder, seed)
  nights: list[Night] = []
  for day in range(1, fortnight.NUM_DAYS + 1):
    nights += opened.run(day)
  write(folder, nights)


def write(folder: pathlib.Path, nights: Sequence[Night]) -> None:
  """Writes nights.csv."""
  tables.write_table(folder / TABLE, [night._asdict() for night in nights])


def read(folder: pathlib.Path) -> list[Night]:
  """Returns the nights of all algorithms and seeds in a folder."""
  nights = []
  for path in sorted(folder.glob(f'*/*/{TABLE}')):
    with path.open(newline='') as file:
      for row in csv.DictReader(file):
        values = Night.__annotations__.items()
        nights.append(Night(**{name: kind(row[name]) for name, kind in values}))
  return nights


def table(nights: Sequence[Night]) -> str:
  """Returns accuracy in percent by day and policy, as a Markdown table.

  Beside the days stand all statuses of the continued runs.
  """
  columns = [(one, policy) for one in _names(nights) for policy in POLICIES]
  lines = [
    ['day', 'status', *(f'{one} {policy}' for one, policy in columns)],
    ['---'] * (2 + len(columns)),
  ]
  for day in range(1, fortnight.NUM_DAYS + 1):
    statuses = {
      night.status
      for night in nights
      if (night.day, night.policy) == (day, CONTINUED)
    }
    means = [
      statistics.fmean(one.accuracy for one in _select(nights, *column, day))
      for column in columns
    ]
    cells = [f'{100 * mean:.1f}' for mean in means]
    lines.append([str(day), ', '.join(sorted(statuses)), *cells])
  return _markdown(lines)


def costs(nights: Sequence[Night]) -> str:
  """Returns totals of a fortnight, means over seeds, as a Markdown table."""
  heading = ['algorithm', 'policy', 'releases', 'refused', 'mean accuracy (%)']
  heading += ['training (s)', 'downlink (thousand floats)', 'uplink']
  lines = [heading, ['---'] * len(heading)]
  for algorithm in _names(nights):
    for policy in POLICIES:
      found = _select(nights, algorithm, policy)
      num_seeds = len({night.seed for night in found})

      def total(name: str, found=found, num_seeds=num_seeds) -> float:
        return sum(getattr(night, name) for night in found) / num_seeds

      statuses = [night.status for night in found]
      lines.append(
        [
          algorithm,
          policy,
          f'{statuses.count(RELEASED) / num_seeds:g}',
          f'{statuses.count(NOT_APPROVED) / num_seeds:g}',
          f'{100 * total("accuracy") / fortnight.NUM_DAYS:.1f}',
          f'{total("seconds"):.0f}',
          f'{total("downlink_floats") / 1000:,.0f}',
          f'{total("uplink_floats") / 1000:,.0f}',
        ]
      )
  return _markdown(lines)


def draw(nights: Sequence[Night]) -> figure_lib.Figure:
  """Draws the accuracy by day: means over seeds, and their range as a band."""
  algorithms = _names(nights)
  figure = style.new_figure_with_legend(
    0.6 + _PANEL_INCHES * len(algorithms),
    "Accuracy of the served models on the next day's rows",
    POLICIES,
  )
  panels = style.new_panels(
    figure, len(algorithms), 1, sharex=True, sharey=True
  )
  days = np.arange(1, fortnight.NUM_DAYS + 1)
  lowest = min(night.accuracy for night in nights)
  for axes, algorithm in zip(panels, algorithms, strict=True):
    for index, policy in enumerate(POLICIES):
      by_day = [
        [night.accuracy for night in _select(nights, algorithm, policy, day)]
        for day in days
      ]
      style.draw_line(
        axes,
        (index, len(POLICIES)),
        days,
        np.mean(by_day, axis=1),
        (np.min(by_day, axis=1), np.max(by_day, axis=1)),
        marker='o',
      )
    for day, event in _EVENTS.items():
      axes.axvline(day, color=style.FAINT, linewidth=1, zorder=0)
      axes.annotate(
        event,
        xy=(day, 0.02),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, 0),
        textcoords='offset points',
        color=style.MUTED,
        fontsize=8,
      )
    axes.set_title(algorithm)
    axes.set_ylabel('accuracy (%)')
    axes.set_ylim(max(0, lowest - 0.12), 1.02)
    axes.set_xticks(days)
    style.format_percent(axes.yaxis)
  panels[-1].set_xlabel('night')
  return figure


def _status(do: Callable[[], str]) -> str:
  """Returns the status of a night that may be refused or fail."""
  try:
    return do()
  except errors.NotApprovedError:
    return NOT_APPROVED
  except errors.DataError:
    return BAD_INPUT


def _costs(run: pathlib.Path) -> tuple[float, int, int]:
  """Returns seconds, downlink and uplink of the rounds of a run, if any."""
  path = run / 'metrics.csv'
  if not path.exists():
    return 0.0, 0, 0
  with path.open(newline='') as file:
    rows = list(csv.DictReader(file))

  def total(name: str) -> float:
    return sum(float(row[name] or 0) for row in rows)

  return (
    round(total('seconds'), 3),
    int(total('cost/downlink_floats')),
    int(total('cost/uplink_floats')),
  )


def _names(nights: Sequence[Night]) -> list[str]:
  return sorted({night.algorithm for night in nights})


def _select(
  nights: Sequence[Night], algorithm: str, policy: str, day: int | None = None
) -> list[Night]:
  return [
    night
    for night in nights
    if (night.algorithm, night.policy) == (algorithm, policy)
    and day in (None, night.day)
  ]


def _markdown(lines: Sequence[Sequence[str]]) -> str:
  return ''.join(f'| {" | ".join(cells)} |\n' for cells in lines)


def _main() -> None:
  parser = argparse.ArgumentParser(
    description='Nights of the simulated fortnight: three policies.'
  )
  parser.add_argument('--folder', type=pathlib.Path, required=True)
  parser.add_argument(
    '--algorithms', nargs='+', choices=ALGORITHMS, default=ALGORITHMS
  )
  parser.add_argument('--seeds', nargs='+', type=int, default=[0])
  flags = parser.parse_args()
  for algorithm, seed in itertools.product(flags.algorithms, flags.seeds):
    run(algorithm, flags.folder / algorithm / str(seed), seed)
  nights = read(flags.folder)
  write(flags.folder, nights)
  with style.applied():
    png = style.to_png(draw(nights))
  with durable.replacing(flags.folder / 'nights.png', 'wb') as file:
    file.write(png)
  print(table(nights))
  print(costs(nights))


if __name__ == '__main__':
  _main()
