"""Metrics log of a training: CSV file, TensorBoard, progress bar.

`metrics.csv` has one row a round, with empty cells where a round was not
evaluated. Rows up to a checkpoint outlast a power loss; on resume, later rows
are removed first, since their rounds are run again. `membership_log` keeps the
clients' memberships.
"""

import csv
import itertools
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_algos.core import durable, errors
from tff_algos.training import membership_log


class MetricsLog:
  """Writer of the metrics of each round; use as a context manager."""

  def __init__(
    self,
    workdir: str | os.PathLike[str],
    num_rounds: int,
    shown_metrics: Mapping[str, str],
    *,
    first_round: int = 0,
    shows_progress: bool = True,
  ):
    """Opens no file yet.

    Args:
      workdir: Folder of `metrics.csv`, `memberships/` and `tensorboard/`.
      num_rounds: Length of the progress bar.
      shown_metrics: Metric name -> its label in the progress bar.
      first_round: Round of the first row: 0, or the last one of the run that
        this run continues.
      shows_progress: Whether to draw a progress bar on stderr.
    """
    self._folder = pathlib.Path(workdir)
    self._csv_path = self._folder / 'metrics.csv'
    self._memberships = membership_log.MembershipLog(workdir)
    self._num_rounds = num_rounds
    self._shown_metrics = shown_metrics
    self._first_round = first_round
    self._shows_progress = shows_progress
    self._shown: dict[str, str] = {}
    self._columns: list[str] = []
    self._bar: Any = None
    self._writer: Any = None

  def __enter__(self) -> 'MetricsLog':
    self._writer = tf.summary.create_file_writer(
      str(self._folder / 'tensorboard')
    )
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self._writer.close()
    if self._bar is not None:
      self._bar.close()

  def resume(self, round_num: int) -> None:
    """Removes the rows after a round and starts the progress bar there.

    Args:
      round_num: The round; 0 removes all rows.
    """
    kept = []
    if round_num and self._csv_path.exists():
      with open(self._csv_path, newline='') as file:
        reader = csv.DictReader(file)
        self._columns = list(reader.fieldnames or ())
        # By count: a killed process may have left an incomplete last row.
        kept = list(itertools.islice(reader, round_num - self._first_round + 1))
    self._memberships.resume(round_num)
    self._rewrite(kept)
    self._bar = tqdm.tqdm(
      total=self._num_rounds,
      initial=max(round_num, self._first_round),
      unit='round',
      disable=not self._shows_progress,
      dynamic_ncols=True,
    )

  def record(
    self,
    round_num: int,
    metrics: Mapping[str, float],
    memberships: np.ndarray | None = None,
  ) -> None:
    """Appends the row of one round.

    Args:
      round_num: The round; 0 is the initial state.
      metrics: name -> value.
      memberships: `[num_clients, num_clusters]` of an evaluated round.

    Raises:
      CheckpointError: If the disk refuses.
    """
    if memberships is not None:
      self._memberships.record(round_num, memberships)
    row = {'round': round_num, **metrics}
    new = [name for name in row if name not in self._columns]
    if new:
      self._add_columns(new)
    self._append(row)
    with self._writer.as_default(step=round_num):
      for name, value in metrics.items():
        if not math.isnan(value):
          tf.summary.scalar(name, value)
    self._writer.flush()
    self._show(round_num, metrics)

  def persist(self) -> None:
    """Makes the rows durable, which a checkpoint relies on.

    Raises:
      CheckpointError: If the disk refuses.
    """
    try:
      durable.sync(self._csv_path)
    except OSError as error:
      raise self._refused(error) from error

  def _show(self, round_num: int, metrics: Mapping[str, float]) -> None:
    for name, label in self._shown_metrics.items():
      if name in metrics:
        self._shown[label] = f'{metrics[name]:.3f}'
    self._bar.set_postfix(self._shown, refresh=False)
    self._bar.update(round_num - self._bar.n)

  def _add_columns(self, names: list[str]) -> None:
    """Adds columns to the table; occurs in the first rounds only."""
    rows = []
    if self._columns:
      with open(self._csv_path, newline='') as file:
        rows = list(csv.DictReader(file))
    self._columns = [*self._columns, *names]
    self._rewrite(rows)

  def _rewrite(self, rows: list[dict[str, Any]]) -> None:
    try:
      with durable.replacing(self._csv_path, newline='') as file:
        if self._columns:
          writer = csv.DictWriter(file, self._columns)
          writer.writeheader()
          writer.writerows(rows)
    except OSError as error:
      raise self._refused(error) from error

  def _append(self, row: Mapping[str, Any]) -> None:
    try:
      with open(self._csv_path, 'a', newline='') as file:
        csv.DictWriter(file, self._columns).writerow(
          {
            name: ''
            if isinstance(value, float) and math.isnan(value)
            else value
            for name, value in row.items()
          }
        )
    except OSError as error:
      raise self._refused(error) from error

  def _refused(self, error: OSError) -> errors.CheckpointError:
    return errors.CheckpointError(
      f'cannot write {self._csv_path}: {error.strerror or error}. Free some '
      'space and run the same command again to resume'
    )


def best_round(
  workdir: str | os.PathLike[str], metric: str, *, higher_is_better: bool
) -> dict[str, float]:
  """Returns the metrics of the best round by a validation metric.

  Args:
    workdir: Folder of `metrics.csv`.
    metric: Name of the metric, such as
      `'participating/validation/personalized/accuracy'`.
    higher_is_better: Whether the largest value is the best.

  Returns:
    `round` and the metrics of that round; the earliest on a tie; empty if no
    round has the metric (there may be no validation examples).
  """
  with open(pathlib.Path(workdir, 'metrics.csv'), newline='') as file:
    rows = [row for row in csv.DictReader(file) if row.get(metric)]
  if not rows:
    return {}
  sign = -1 if higher_is_better else 1
  best = min(rows, key=lambda row: sign * float(row[metric]))
  values = {name: float(value) for name, value in best.items() if value}
  return {**values, 'round': int(best['round'])}
