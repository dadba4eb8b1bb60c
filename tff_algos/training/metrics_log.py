"""Metrics log of a training: CSV file, TensorBoard, progress bar.

`metrics.csv` has one row a round, with empty cells where a round was not
evaluated, and `nan` where it was and the metric is not a number. Rows up to a
checkpoint outlast a power loss; on resume, later rows are removed first, since
their rounds are run again. `memberships/round_000012.npy` is float32
`[num_clients, num_clusters]`, the memberships of an evaluated round, with
clients in the order of the dataset.
"""

import csv
import io
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_algos.core import durable, errors, records, round_files
from tff_algos.evaluation import summaries

METRICS_FILE = 'metrics.csv'


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
    self._csv_path = self._folder / METRICS_FILE
    self._memberships = round_files.RoundFiles(workdir, 'memberships', '.npy')
    self._num_rounds = num_rounds
    self._shown_metrics = shown_metrics
    self._first_round = first_round
    self._shows_progress = shows_progress
    self._shown: dict[str, str] = {}
    self._columns: list[str] = []
    self._num_rows = 0
    self._written = records.Growth()
    self._bar: Any = None
    self._writer: Any = None

  def __enter__(self) -> 'MetricsLog':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    if self._writer is not None:
      self._writer.close()
    if self._bar is not None:
      self._bar.close()

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Removes the rows after a round and starts the progress bar there.

    Args:
      round_num: The round; 0 removes all rows.
      entries: Checked entries of the records until it; without that of the
        metrics, the first rows are taken as they are.
    """
    kept = b''
    entry = entries.get(METRICS_FILE)
    if entry:
      kept = records.read_part(self._csv_path, entry)
    elif round_num and self._csv_path.is_file():
      # By count: a killed process may have left an incomplete last row.
      num_rows = round_num - self._first_round + 1
      kept = records.table_part(self._csv_path.read_bytes(), num_rows)
    self._memberships.resume(round_num, entries)
    if not round_num:
      self._remove_events()
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
      InfrastructureError: If the disk refuses.
    """
    if memberships is not None:
      content = io.BytesIO()
      np.save(content, np.asarray(memberships, np.float32))
      self._memberships.write(
        round_num, lambda file: file.write(content.getbuffer())
      )
    row = {'round': round_num, **metrics}
    new = [name for name in row if name not in self._columns]
    if new:
      self._add_columns(new)
    self._append(row)
    self._summarize(round_num, metrics)
    self._show(round_num, metrics)

  def persist(self) -> records.Entries:
    """Makes the rows durable, which a checkpoint relies on.

    Returns:
      The entries of metrics and memberships.

    Raises:
      InfrastructureError: If the disk refuses.
    """
    with durable.writing(self._csv_path):
      durable.sync(self._csv_path)
    entry = self._written.entry(
      num_rows=self._num_rows, num_columns=len(self._columns)
    )
    return {METRICS_FILE: entry, **self._memberships.entries}

  def _remove_events(self) -> None:
    """Removes the events of an earlier run, which TensorBoard would add."""
    folder = self._folder / 'tensorboard'
    with durable.writing(folder):
      for path in folder.glob('events.out.tfevents.*'):
        path.unlink()

  def _summarize(self, round_num: int, metrics: Mapping[str, float]) -> None:
    """Writes a round for TensorBoard."""
    folder = self._folder / 'tensorboard'
    with durable.writing(folder, tf.errors.OpError):
      if self._writer is None:  # A training that is over adds no file.
        durable.make_folder(folder)
        self._writer = tf.summary.create_file_writer(str(folder))
      with self._writer.as_default(step=round_num):
        for name, value in metrics.items():
          if not math.isnan(value):
            tf.summary.scalar(name, value)
      self._writer.flush()

  def _show(self, round_num: int, metrics: Mapping[str, float]) -> None:
    for name, label in self._shown_metrics.items():
      if name in metrics:
        self._shown[label] = f'{metrics[name]:.3f}'
    self._bar.set_postfix(self._shown, refresh=False)
    self._bar.update(round_num - self._bar.n)

  def _add_columns(self, names: list[str]) -> None:
    """Adds columns to the table; occurs in the first rounds only."""
    lines = _lines(self._csv_path.read_bytes())
    header, rows = lines[:1] or [[]], lines[1:]
    empty = [''] * len(names)
    self._rewrite(
      _spell([[*header[0], *names], *([*row, *empty] for row in rows)])
    )

  def _rewrite(self, content: bytes) -> None:
    """Replaces the table."""
    path = self._csv_path
    with durable.writing(path), durable.replacing(path, 'wb') as file:
      file.write(content)
    header, *rows = _lines(content) or [[]]
    self._columns, self._num_rows = header, len(rows)
    self._written = records.Growth(content)

  def _append(self, row: Mapping[str, Any]) -> None:
    line = _spell([[row.get(name) for name in self._columns]])
    path = self._csv_path
    with durable.writing(path), open(path, 'ab') as file:
      file.write(line)
    self._num_rows += 1
    self._written.append(line)


def _lines(content: bytes) -> list[list[str]]:
  return list(csv.reader(io.StringIO(content.decode(), newline='')))


def _spell(lines: list[list[Any]]) -> bytes:
  text = io.StringIO(newline='')
  csv.writer(text).writerows(lines)
  return text.getvalue().encode()


def _is_number(cell: str | None) -> bool:
  return bool(cell) and not math.isnan(float(cell))


def best_round(
  workdir: str | os.PathLike[str],
  metric: str,
  entries: records.Entries,
  last_round: int,
) -> dict[str, float]:
  """Returns the metrics of the best round by a validation metric.

  Args:
    workdir: Folder of `metrics.csv`.
    metric: Name of the metric, such as
      `'participating/validation/personalized/accuracy'`.
    entries: Checked entries of the records, by which the rows are checked; a
      run that has just been continued has none.
    last_round: That of the last checkpoint; later rows do not count.

  Returns:
    `round` and the metrics of that round without its seconds, so that the same
    training gives the same answer; the earliest on a tie; empty if no round has
    the metric, of all clients (there may be no validation examples). Not the
    initial state, round 0, of which there is no checkpoint.

  Raises:
    DataError: If the table cannot be read.
  """
  path = pathlib.Path(workdir, METRICS_FILE)
  if not os.path.lexists(path):
    return {}
  try:
    entry = entries.get(METRICS_FILE)
    content = records.read_part(path, entry) if entry else path.read_bytes()
    lines = io.StringIO(content.decode(), newline='')
    rows = [
      row
      for row in csv.DictReader(lines)
      if not math.isnan(summaries.whole(row, metric))
      and 0 < int(row['round']) <= last_round
    ]
    if not rows:
      return {}
    choose = min if summaries.is_error(metric) else max
    best = choose(rows, key=lambda row: float(row[metric]))
    values = {
      name: float(value)
      for name, value in best.items()
      if _is_number(value) and name != 'seconds'
    }
    return {**values, 'round': int(best['round'])}
  except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
    raise errors.DataError(
      f'{path} cannot be read: {error}. Put a copy of it back, or remove '
      f'{pathlib.Path(workdir, "checkpoints")} and run binaries.train again, '
      'which then trains from the beginning'
    ) from error
