"""Run: config, metrics and evaluation tables read from a workdir."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import errors, records, sealed_json
from tff_algos.evaluation import recovery, round_time, summaries
from tff_algos.reports.plotting import table as table_lib
from tff_algos.reports.run import drift_report
from tff_algos.reports.run import membership_history as membership_history_lib

_FACTORS = 'factors/'
_DIRECTIONS = ('downlink', 'uplink')
_MADE_BY = {
  'config.json': 'train',
  'metrics.csv': 'train',
  'evaluation/summary.json': 'evaluate',
  'evaluation/clients.csv': 'evaluate',
}


class Series(NamedTuple):
  """Time series of a metric over rounds.

  Attributes:
    rounds: float64 `[n]`, ascending.
    values: float64 `[n]`, finite.
    diverged: First round after them with a value that is not finite, at least
      for a client; None if there is none.
  """

  rounds: np.ndarray
  values: np.ndarray
  diverged: int | None = None


@dataclasses.dataclass(frozen=True)
class Run:
  """A trained and evaluated run.

  Attributes:
    workdir: Folder of the run.
    name: Name of the experiment.
    config_hash: Hash of the config.
    config: Resolved config.
    rounds: `metrics.csv`: one row per round, before them one of the initial
      state, or of the state that a continued run starts from.
    clients: `evaluation/clients.csv`.
    summary: `evaluation/summary.json`.
    clock: Virtual clock of the pictures of time.
    run_hash: Hash of what affects training state; None if it is not known.
  """

  workdir: pathlib.Path
  name: str
  config_hash: str
  config: Mapping[str, Any]
  rounds: table_lib.Table
  clients: table_lib.Table
  summary: Mapping[str, Any]
  clock: round_time.Clock = round_time.Clock()
  run_hash: str | None = None

  @functools.cached_property
  def score_name(self) -> str:
    """Returns `'accuracy'`, or `'mse'` for a regression."""
    has_accuracy = any(
      name.endswith('/accuracy') for name in self.rounds.columns
    )
    return 'accuracy' if has_accuracy else 'mse'

  @property
  def higher_is_better(self) -> bool:
    """Returns whether larger scores are better."""
    return self.score_name == 'accuracy'

  @functools.cached_property
  def source_names(self) -> tuple[str, ...]:
    """Returns the names of all source distributions."""
    return tuple(self.summary['source_names'])

  @functools.cached_property
  def num_clusters(self) -> int:
    """Returns the number of cluster models."""
    return self.summary['num_clusters']

  @property
  def first_round(self) -> int:
    """Returns the round of the first row, 0 unless another run is continued."""
    return int(self.rounds.numbers('round')[0])

  @property
  def last_round(self) -> int:
    """Returns the round of the last row."""
    return int(self.rounds.numbers('round')[-1])

  @property
  def evaluated_round(self) -> int:
    """Returns the round of `summary` and `clients`, by default the last."""
    last = self.summary.get('last') or {}
    return int(last.get('round', self.last_round))

  @property
  def num_rounds(self) -> int:
    """Returns the number of rounds that were run."""
    return self.last_round - self.first_round

  @property
  def round_limits(self) -> tuple[int, int]:
    """Returns the ends of an axis of rounds."""
    return self.first_round, max(self.last_round, self.first_round + 1)

  def series(self, name: str) -> Series | None:
    """Returns a column over the rounds with finite values of all clients.

    Args:
      name: Column of `metrics.csv`, or with the prefix `factors/` of
        `evaluation/factors.csv`.

    Returns:
      Without rounds of which `summaries.whole` has no value; None if there is
      no such column, or no such round.
    """
    table, column = self.rounds, name
    if name.startswith(_FACTORS):
      table = self.evaluation_table('factors.csv')
      column = name.removeprefix(_FACTORS)
    if table is None or column not in table:
      return None
    # Cells of rounds without an evaluation are empty.
    is_given = np.array([bool(text) for text in table.texts(column)])
    rounds = table.numbers('round')[is_given]
    values = table.numbers(column)[is_given]
    is_whole = np.isfinite(values)
    left_out = summaries.num_left_out(name)
    if left_out in table:
      is_whole &= ~(table.numbers(left_out)[is_given] > 0)
    (known,) = np.nonzero(is_whole)
    if not known.size:
      return None
    after = rounds[known[-1] + 1 :]
    return Series(
      rounds[known], values[known], int(after[0]) if after.size else None
    )

  def sent(self, *directions: str) -> Series | None:
    """Returns the numbers sent until the end of each round.

    Args:
      *directions: `'downlink'` or `'uplink'`; both if none is given.

    Returns:
      None if they were not counted.
    """
    names = [f'cost/{one}_floats' for one in directions or _DIRECTIONS]
    if not all(name in self.rounds for name in names):
      return None
    floats = sum(np.nan_to_num(self.rounds.numbers(name)) for name in names)
    return Series(self.rounds.numbers('round'), np.cumsum(floats))

  def evaluation_table(self, name: str) -> table_lib.Table | None:
    """Returns an optional table of the folder `evaluation`.

    Args:
      name: File name.

    Returns:
      None if there is no such file.
    """
    path = self.workdir / 'evaluation' / name
    return table_lib.read(path) if path.is_file() else None

  def held_out(self, source: str, cluster: int) -> Series | None:
    """Returns one cluster model's score on one source distribution."""
    column = f'held_out/{source}/cluster_{cluster}/{self.score_name}'
    return self.series(column)

  @functools.cached_property
  def held_out_scores(self) -> np.ndarray:
    """Returns `scores_of` the evaluated round."""
    return self.scores_of(self.summary.get('last') or {})

  def scores_of(self, metrics: Mapping[str, float]) -> np.ndarray:
    """Returns the held-out scores of a round; NaN if not finite or absent.

    Args:
      metrics: Metrics of the round.

    Returns:
      float64 `[num_clusters, num_sources]`.
    """
    name = f'held_out/{{}}/cluster_{{}}/{self.score_name}'.format
    scores = [
      [metrics.get(name(source, cluster)) for source in self.source_names]
      for cluster in range(self.num_clusters)
    ]
    found = np.array(scores, np.float64)
    return np.where(np.isfinite(found), found, np.nan)

  @functools.cached_property
  def memberships(self) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Returns (membership, true mixture) of the participating clients.

    Returns:
      float64 `[n, num_clusters]` and `[n, num_sources]` (None if there is no
      ground truth) of the clients with a membership; None if none has one.
    """
    membership, known = self.clients.matrix('membership_'), self._has_membership
    if membership is None or not known.any():
      return None
    mixture = self.clients.matrix('true_mixture_')
    if mixture is None or not np.isfinite(mixture[known]).all():
      return membership[known], None
    return membership[known], mixture[known]

  @functools.cached_property
  def participating_ids(self) -> list[str]:
    """Returns the ids of all participating clients, by client index."""
    ids = np.array(self.clients.texts('client_id'))
    return ids[self.is_participating].tolist()

  @functools.cached_property
  def is_participating(self) -> np.ndarray:
    """Returns which rows of `clients` are participating ones, bool `[n]`."""
    return np.array(self.clients.texts('group')) == 'participating'

  @functools.cached_property
  def attacker_ids(self) -> list[str]:
    """Returns the ids of the Byzantine clients, none if it is not known."""
    if 'is_attacker' not in self.clients:
      return []
    flags = self.clients.numbers('is_attacker') == 1
    return np.array(self.clients.texts('client_id'))[flags].tolist()

  @functools.cached_property
  def member_ids(self) -> list[str]:
    """Returns the client id of each row of `memberships`."""
    return np.array(self.clients.texts('client_id'))[
      self._has_membership
    ].tolist()

  @functools.cached_property
  def _has_membership(self) -> np.ndarray:
    """Returns which rows of `clients` are in `memberships`, bool `[n]`."""
    membership = self.clients.matrix('membership_')
    if membership is None:
      return np.array([False])
    return np.isfinite(membership).all(axis=1) & self.is_participating

  @functools.cached_property
  def matched_sources(self) -> np.ndarray:
    """Returns the matched source of each cluster, int64 `[num_clusters]`.

    Positions in `planted_names`, without ground truth in `source_names`;
    `recovery.UNMATCHED` for a cluster without a source.
    """
    names = self.planted_names or self.source_names
    return np.array(
      [
        names.index(name) if name in names else recovery.UNMATCHED
        for name in self.summary['matched_sources']
      ]
    )

  @functools.cached_property
  def cluster_order(self) -> np.ndarray:
    """Returns the clusters in the order of their sources, unmatched last."""
    matched = self.matched_sources
    return np.lexsort((matched, matched == recovery.UNMATCHED))

  @functools.cached_property
  def planted_names(self) -> tuple[str, ...]:
    """Returns the names of the columns of the true mixture."""
    return tuple(self.summary['planted_names'] or ())

  @functools.cached_property
  def membership_history(
    self,
  ) -> membership_history_lib.MembershipHistory | None:
    """Returns all memberships until `evaluated_round`; None without any.

    Covers all participating clients, in the order of `clients`.
    """
    return membership_history_lib.read(self.workdir, self.evaluated_round)

  @functools.cached_property
  def drift(self) -> drift_report.DriftReport | None:
    """Returns the drift from the parent run; None if it was not measured."""
    return drift_report.read(self.workdir)

  def planted_mixture(self, num_clients: int) -> np.ndarray | None:
    """Returns the true mixture of all participating clients.

    Args:
      num_clients: Number of participating clients.

    Returns:
      float64 `[num_clients, len(planted_names)]`; None without ground truth, or
      if `clients` has another number of rows.
    """
    _, mixture = self.memberships or (None, None)
    return None if mixture is None or len(mixture) != num_clients else mixture


def read(
  workdir: str | os.PathLike[str],
  clock: round_time.Clock = round_time.Clock(),
) -> Run:
  """Reads the files of a run.

  Args:
    workdir: Folder of the run.
    clock: Virtual clock of the pictures of time.

  Raises:
    DataError: If a file is missing, with the command that makes it, or cannot
      be read.
  """
  workdir = pathlib.Path(workdir)
  remedies = {
    name: f'Make it with `python -m binaries.{binary} --config=CONFIG '
    f'--workdir={workdir}`.'
    for name, binary in _MADE_BY.items()
  }
  for name, remedy in remedies.items():
    if not os.path.lexists(workdir / name):
      raise errors.DataError(f'{workdir / name} is missing. {remedy}')
  config = sealed_json.read(workdir / 'config.json', remedies['config.json'])
  _check_records(workdir, config)
  run = Run(
    workdir=workdir,
    name=str(config.get('name', workdir.name)),
    config_hash=str(config.get('config_hash', '')),
    config=config.get('config', {}),
    rounds=table_lib.read(workdir / 'metrics.csv'),
    clients=table_lib.read(workdir / 'evaluation' / 'clients.csv'),
    summary=sealed_json.read(
      workdir / 'evaluation' / 'summary.json',
      remedies['evaluation/summary.json'],
    ),
    clock=clock,
    run_hash=config.get('run_hash'),
  )
  run.rounds.texts('round')  # The one required column.
  return run


def _check_records(workdir: pathlib.Path, config: Mapping[str, Any]) -> None:
  """Raises DataError if a file is damaged, or not of the run.

  Without `records.json` the evaluation is taken as it is.
  """
  again = 'Run binaries.evaluate again, which checks it or writes it anew.'
  folder = workdir / 'evaluation'
  place = folder / records.FILE
  known = records.read(folder, f'Remove {place}, and run binaries.evaluate.')
  if known is None:
    return
  found = records.first_problem(workdir, known['files'])
  if found:
    raise errors.DataError(f'{found} (by {place}). {again}')
  if known.get('run_hash', ...) not in (config.get('run_hash'), ...):
    raise errors.DataError(
      f'{workdir / "config.json"} is of another run than {folder}. Run '
      "binaries.train again with the run's own config, which writes it anew."
    )
