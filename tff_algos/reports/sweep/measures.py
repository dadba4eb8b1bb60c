"""Measures for the comparison of runs.

Cluster indices are arbitrary, so metrics of "cluster 0" are never averaged over
runs: clusters are matched to source distributions first.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import axes as axes_lib
from matplotlib import axis as axis_lib
from matplotlib import ticker

from tff_algos.evaluation import association, recovery
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib

SENT = 'cost/total_floats'
ARI = 'participating/membership/ari'
# Least adjusted Rand index of a run that recovered the planted clusters.
LEAST_ARI = 0.9
# Caption of the panel of success rates.
RATES = (
  ' Last panel: share of the seeds that recovered the ground-truth clusters, '
  "with Wilson's 95 % confidence interval."
)
_OF_ONE_CLUSTER = re.compile(r'/cluster_\d+/')


class Measure(NamedTuple):
  """A metric in tables and pictures.

  Attributes:
    name: Name of the metric.
    title: Description.
    unit: `'score'` for accuracy or squared error, `'share'` for shares in
      [0, 1], shown in per cent, `'floats'` for numbers sent, `'rounds'`, else
      `''`.
  """

  name: str
  title: str
  unit: str = 'score'

  def text(self, run: run_lib.Run, mean: float, std: float) -> str:
    """Returns `'mean ± std'`, or the mean if `std` is NaN; no unit."""
    spell = self._speller(run, mean)
    return f'{spell(mean)} ± {spell(std)}' if np.isfinite(std) else spell(mean)

  def _speller(
    self, run: run_lib.Run, example: float
  ) -> Callable[[float], str]:
    """Returns a formatter with a precision that suits `example`."""
    if self.unit == 'floats':
      return ticker.EngFormatter(places=1, sep='').format_eng
    if self.unit == 'rounds':
      return lambda value: f'{value:.1f}'
    if self.unit == 'share' or (self.unit == 'score' and run.higher_is_better):
      return lambda value: f'{100 * value:.1f}'
    if self.unit == 'score' and example:
      decimals = max(0, 2 - math.floor(math.log10(abs(example))))
      return lambda value: f'{value:.{decimals}f}'
    return lambda value: f'{value:.3f}'

  def label(self, run: run_lib.Run) -> str:
    """Returns the axis label, with the unit."""
    return {
      'score': style.score_label(run),
      'share': 'percentage points',
      'floats': 'floats',
      'rounds': 'rounds',
    }.get(self.unit, '')

  def format_axis(self, run: run_lib.Run, axis: axis_lib.Axis) -> None:
    """Formats an axis of values in the unit of the measure."""
    if self.unit == 'share':
      style.format_percent(axis)
    elif self.unit == 'score':
      style.format_scores(run, axis)
    elif self.unit == 'floats':
      axis.set_major_formatter(ticker.EngFormatter(sep=''))


def shown(score_name: str) -> tuple[Measure, ...]:
  """Returns the measures of tables and pictures, the most important first.

  Args:
    score_name: `'accuracy'` or `'mse'`.
  """
  return (
    Measure(
      f'held_out/mean/best_cluster/{score_name}', 'best cluster, held out'
    ),
    Measure(
      f'held_out/mean/other_clusters/{score_name}', 'other clusters, held out'
    ),
    Measure(ARI, 'cluster recovery (ARI)', ''),
    Measure('participating/membership/error', 'membership error', 'share'),
    Measure(
      f'participating/test/personalized/{score_name}', 'personalized, test'
    ),
    Measure(
      f'attack/honest/test/personalized/{score_name}',
      'personalized, test, honest clients',
    ),
    Measure(f'participating/test/local/{score_name}', 'local, test'),
    Measure(f'participating/test/cluster/{score_name}', 'own cluster, test'),
    Measure(
      f'participating/train/personalized/{score_name}',
      'personalized, training',
    ),
    Measure(SENT, 'communication', 'floats'),
  )


def share_scores(
  places: Sequence[axes_lib.Axes], panels: Sequence[Measure], axis: str
) -> None:
  """Gives all panels of scores one scale.

  Args:
    places: Axes of the panels; spare ones may follow.
    panels: Measure of each panel.
    axis: `'x'` or `'y'`: the axis of the measure.
  """
  scores = [
    axes
    for axes, measure in zip(places, panels, strict=False)
    if measure.unit == 'score'
  ]
  for axes in scores[1:]:
    getattr(axes, f'share{axis}')(scores[0])


def may_be_averaged(name: str) -> bool:
  """Returns whether a metric is comparable between runs."""
  return not _OF_ONE_CLUSTER.search(name)


def matched_scores(run: run_lib.Run) -> np.ndarray | None:
  """Returns the scores of the cluster model matched to each source.

  Matched as in `Run.matched_sources` if the sources are the ground truth, else
  for the best total score of clusters on their own sources.

  Returns:
    float64 `[num_sources, num_sources]`: row s is the cluster matched to
    source s, column t the source it is scored on; a row is NaN if there are
    fewer clusters. None if a score is missing, or there is one model only.
  """
  scores = run.held_out_scores
  if run.num_clusters == 1 or not scores.size or not np.isfinite(scores).all():
    return None
  sources = run.matched_sources
  if run.planted_names != run.source_names:
    sources = association.match_by_scores(
      scores, higher_is_better=run.higher_is_better
    )
  known = sources != recovery.UNMATCHED
  matched = np.full((scores.shape[1],) * 2, np.nan)
  matched[sources[known]] = scores[known]
  return matched


def last(run: run_lib.Run) -> dict[str, float]:
  """Returns the metrics of the evaluated round, and derived metrics.

  It is the last round, unless the run was evaluated at another one. Metrics
  that an evaluation lacks, such as `train/loss`, are those of training, without
  `seconds`. Derived metrics of the same round: `cost/total_floats`, and
  `held_out/<t>/cluster_of_<s>/<score>`, the score on source t of the cluster
  that is matched to source s.
  """
  evaluated = run.summary.get('last') or {}
  values = _with_sent(run, {**_trained(run), **evaluated})
  name = f'held_out/{{}}/cluster_of_{{}}/{run.score_name}'.format
  matched = matched_scores(run)
  if matched is not None:
    for row, source in zip(matched, run.source_names, strict=True):
      for value, scored_on in zip(row, run.source_names, strict=True):
        values[name(scored_on, source)] = float(value)
  return values


def _trained(run: run_lib.Run) -> dict[str, float]:
  """Returns the finite metrics of the evaluated round in `metrics.csv`."""
  is_evaluated = run.rounds.numbers('round') == run.evaluated_round
  return {
    name: float(value)
    for name in run.rounds.columns
    if name != 'seconds'
    for value in run.rounds.numbers(name)[is_evaluated]
    if np.isfinite(value)
  }


def best(run: run_lib.Run) -> dict[str, float]:
  """Returns the metrics of the best round by validation.

  Includes `cost/total_floats` up to that round.
  """
  return _with_sent(run, run.summary.get('best_by_validation') or {})


def _with_sent(
  run: run_lib.Run, values: Mapping[str, float]
) -> dict[str, float]:
  """Returns the metrics of a round with `cost/total_floats` up to it."""
  total = run.sent()
  if total is None or values.get('round') not in total.rounds:
    return dict(values)
  until = total.values[total.rounds == values['round']]
  return {**values, SENT: float(until[0])}


def found_clusters(run: run_lib.Run) -> bool | None:
  """Returns whether a run recovered the clusters.

  The adjusted Rand index of the clients' main clusters must be at least
  `LEAST_ARI`, with at least as many non-empty clusters as there are in the
  ground truth (or all, if there are fewer).

  Returns:
    None if there is only one cluster, no client has a main cluster, or there
    is no ground truth to recover.
  """
  ari = (run.summary.get('last') or {}).get(ARI)
  if run.num_clusters == 1 or 'cluster_id' not in run.clients or ari is None:
    return None
  ids = run.clients.numbers('cluster_id')[run.is_participating]
  num_used = len(np.unique(ids[np.isfinite(ids)]))
  needed = run.num_clusters
  if run.memberships is not None and run.memberships[1] is not None:
    planted = recovery.hard_labels(run.memberships[1])
    needed = min(needed, len(np.unique(planted)))
  return bool(ari >= LEAST_ARI and num_used >= needed)
