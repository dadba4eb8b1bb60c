"""Summary table of a run for the report page and the terminal."""

import math
import os
import pathlib
import textwrap
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tff_algos.evaluation import association, recovery
from tff_algos.reports.plotting import style
from tff_algos.reports.run import planted_distances, warning_texts
from tff_algos.reports.run import run as run_lib

_WIDTH = 80
_NUMBER_WIDTH = 15
_ABSENT = '–'

_OF_CLIENTS = (
  ('', '{model}'),
  ('_plain_mean', '  mean over clients'),
  ('_worst_decile', '  worst decile of clients'),
)
_RECOVERY = (
  ('participating/membership/ari', 'cluster recovery, ARI'),
  ('participating/membership/nmi', 'cluster recovery, NMI'),
  ('participating/membership/purity', 'cluster recovery, purity'),
  ('participating/membership/error', 'membership, mean absolute error'),
)
_MAJORITY = (
  ('per_client', "majority class of each client's training labels"),
  ('global', "majority class of all clients' training labels"),
)


class Row(NamedTuple):
  """One line of the table.

  Attributes:
    label: Name of the quantity; two leading blanks mark a detail of the row
      above.
    last: Value in the evaluated round, by default the last, as text.
    best: Value in the best round by validation, as text.
  """

  label: str
  last: str
  best: str


def rows(run: run_lib.Run) -> list[Row]:
  """Returns the table of the evaluated round and the best by validation.

  Quantities that neither round has are left out.
  """
  points = [_point(run, 'last'), _point(run, 'best_by_validation')]
  score_text = lambda value: style.score_text(run, value)
  table = [_row('round', points, 'round', lambda value: f'{value:.0f}')]
  for name, label in _score_names(run):
    table.append(_row(label, points, name, score_text))
  sources = [_source_row(run, points, source) for source in run.source_names]
  table += sources
  if len(sources) > 1 and any(row.last != _ABSENT for row in sources):
    table.append(
      _row(
        '  distinct clusters among the best',
        points,
        'held_out/num_distinct_best_clusters',
        lambda value: f'{value:.0f} of {run.num_clusters}',
      )
    )
  table += [
    _row(label, points, name, lambda value: f'{value:.3f}')
    for name, label in _RECOVERY
  ]
  epsilon = ('privacy epsilon, for clients', points, 'privacy/epsilon')
  table.append(_row(*epsilon, _bound_text))
  table += _distance_rows(run)
  table.append(_settled_row(run))
  majority = run.summary.get('majority_class') or {}
  # The same in all rounds.
  majorities = [majority if point else {} for point in points]
  table += [
    _row(label, majorities, name, score_text) for name, label in _MAJORITY
  ]
  return [row for row in table if (row.last, row.best) != (_ABSENT, _ABSENT)]


def _score_names(run: run_lib.Run) -> list[tuple[str, str]]:
  """Returns (metric, label) of the scores on the clients' own examples."""
  models = style.models_of_client(run)
  names = []
  for split, suffix in (('test', ''), ('train', ', TRAINING data')):
    for model, label in models.items():
      label += suffix
      names += [
        (
          f'participating/{split}/{model}/{run.score_name}{end}',
          text.format(model=label),
        )
        for end, text in _OF_CLIENTS
        if split == 'test' or end != '_worst_decile'
      ]
    if split == 'test':
      names.append(
        (
          f'attack/honest/test/personalized/{run.score_name}',
          'personalized models, honest clients only',
        )
      )
      names += [
        (
          f'unseen/test/{model}/{run.score_name}',
          f'{models[model]}, unseen clients',
        )
        for model in ('personalized', 'cluster')
      ]
  return names


def _distance_rows(run: run_lib.Run) -> list[Row]:
  """Returns distances of memberships from true mixtures, last and first."""
  ends = planted_distances.at_both_ends(run)
  texts = [
    f'{np.median(end.values):.3f} ({end.values.mean():.3f})' for end in ends
  ]
  labels = ['membership, total variation, median (mean)']
  labels += [f'  in round {end.round_num}' for end in ends[:-1]]
  rows = [
    Row(label, text, _ABSENT)
    for label, text in zip(labels, texts[::-1], strict=False)
  ]
  if ends and ends[-1].num_unsampled:
    left_out = f'{ends[-1].num_unsampled:,}'
    rows.insert(1, Row('  clients left out, never sampled', left_out, _ABSENT))
  return rows


def _settled_row(run: run_lib.Run) -> Row:
  """Returns the round after which no client changed its main cluster."""
  history = run.membership_history
  if history is None or len(history.rounds) < 2:
    return Row('', _ABSENT, _ABSENT)
  settled = history.settled_round
  text = f'round {settled}'
  if settled is None:
    is_changing = history.last_change == len(history.rounds) - 1
    text = 'still changing' if is_changing else 'no new estimate'
  return Row('main clusters unchanged since', text, _ABSENT)


def heading(run: run_lib.Run) -> str:
  """Returns one sentence: algorithm, clients, sources, rounds and time."""
  algorithm = _named(run.config.get('algorithm'))
  clusters = 'one model'
  if run.num_clusters > 1:
    clusters = f'{run.num_clusters} cluster models'
  sources = ''
  if run.source_names:
    word = 'distribution' if len(run.source_names) == 1 else 'distributions'
    sources = (
      f' whose examples come from {len(run.source_names)} source {word} '
      f'({", ".join(run.source_names)})'
    )
  trained = f'{algorithm} trained ' if algorithm else 'Training of '
  return (
    f'{trained}{clusters} on {len(run.participating_ids)} clients{sources}, in '
    f'{_num_rounds(run)} and {run_time(run)}.'
  )


def _num_rounds(run: run_lib.Run) -> str:
  """Returns the number of rounds as text; of a continued run also which."""
  text = f'{run.num_rounds} rounds'
  if run.first_round:
    return f'{text} ({run.first_round + 1} to {run.last_round})'
  return text


def run_time(run: run_lib.Run) -> str:
  """Returns the wall time of all rounds as text."""
  if 'seconds' not in run.rounds:
    return 'an unknown time'
  seconds = float(np.nansum(run.rounds.numbers('seconds')))
  if seconds < 60:
    return f'{seconds:.3g} s'
  minutes = round(seconds / 60)
  if minutes < 120:
    return f'{minutes} min'
  return f'{minutes // 60} h {minutes % 60} min'


def console_summary(workdir: str | os.PathLike[str]) -> str:
  """Returns the table as plain text, no line wider than 80 columns.

  Raises:
    DataError: If a file is missing or damaged; names the file and the command
      that writes it.
  """
  run = run_lib.read(pathlib.Path(workdir))
  lines = [
    _cut(f'{run.name}  (config {run.config_hash})'),
    _cut(
      f'{_num_rounds(run)} in {run_time(run)}; test {style.score_word(run)}, '
      'each example counts the same'
    ),
    '',
    _line('', f'round {run.evaluated_round}', 'best (valid.)'),
    '-' * _WIDTH,
  ]
  lines += [_line(*row) for row in rows(run)]
  for text in warning_texts.sentences(run):
    lines += textwrap.wrap(text, _WIDTH)
  return '\n'.join(lines)


def _line(label: str, last: str, best: str) -> str:
  room = _WIDTH - 2 * _NUMBER_WIDTH
  label = _cut(label, room)
  return f'{label:<{room}}{last:>{_NUMBER_WIDTH}}{best:>{_NUMBER_WIDTH}}'


def _cut(text: str, width: int = _WIDTH) -> str:
  return text if len(text) <= width else text[: width - 1] + '…'


def _point(run: run_lib.Run, name: str) -> Mapping[str, float]:
  return run.summary.get(name) or {}


def _bound_text(value: float) -> str:
  """Returns a bound as text, rounded up but for errors of rounding."""
  return f'{np.ceil(np.round(100 * value, 6)) / 100:.2f}'


def _row(label, points, name, to_text) -> Row:
  return Row(label, *(_text(point.get(name), to_text) for point in points))


def _text(value, to_text) -> str:
  known = isinstance(value, (int, float)) and math.isfinite(value)
  return to_text(value) if known else _ABSENT


def _source_row(run: run_lib.Run, points, source: str) -> Row:
  """Returns score and number of the best cluster on one source."""
  texts = []
  for point in points:
    scores = run.scores_of(point)[:, run.source_names.index(source)]
    (best,) = association.best_clusters(
      scores[:, np.newaxis], higher_is_better=run.higher_is_better
    )
    if best == recovery.UNMATCHED:
      texts.append(_ABSENT)
      continue
    text = style.score_text(run, float(scores[best]))
    texts.append(text if run.num_clusters == 1 else f'({best}) {text}')
  label = 'best cluster' if run.num_clusters > 1 else 'global model'
  return Row(f'{label} on held-out {source}', *texts)


def _named(section) -> str:
  """Returns the `name` of a config section, if it has one."""
  return str(section.get('name', '')) if isinstance(section, Mapping) else ''
