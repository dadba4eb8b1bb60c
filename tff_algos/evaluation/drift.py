"""Drift of a dataset version and its clusters from those of a parent run.

Every measure is 0 for equal data and does not depend on the order of clients.
The distance of two sets of labels is, for classes, the total variation of their
shares (from 0 to 1) and, for numbers, the standardized shift of their means
(from 0 to 2, see `distances.standardized_shift`); that of two sets of features
is the standardized shift of the means of all features. All examples of a client
count, of all splits; a client's features are pooled to one mean and deviation.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import checks, errors
from tff_algos.data import raw_features
from tff_algos.data import schema as schema_lib
from tff_algos.data import statistics as statistics_lib
from tff_algos.evaluation import distances

# Files of a run.
REPORT, CLIENTS = 'drift.json', 'drift_clients.csv'
STAYED, NEW, DEPARTED = 'stayed', 'new', 'departed'

_SHIFTS = ('label_shift', 'feature_shift')
_OF_CLUSTERS = ('changed_clusters', 'far_clients', 'loss_increase')
_NOBODY_STAYED = 'no client with examples is in both versions'
_MAX_FEATURES = 5
_LIMIT = 'max_'


@dataclasses.dataclass(frozen=True)
class DriftConfig:
  """Thresholds of the drift from the parent run; None only reports a measure.

  Above a threshold binaries.drift fails with exit code 3, and so does
  binaries.nightly, before the training; binaries.train looks at none.

  Attributes:
    max_label_shift: Distance of all labels.
    max_source_label_shift: The same of one source distribution, the largest.
    max_client_label_shift: The same of one client, mean over the clients that
      stayed.
    max_feature_shift: Distance of all features, in standard deviations.
    max_source_feature_shift: The same of one source distribution, the largest.
    max_client_feature_shift: The same of one client, mean over the clients that
      stayed.
    max_new_clients: Share of the clients that the parent does not have.
    max_departed_clients: Share of the parent's clients that are gone.
    max_changed_clusters: Share of the clients that stayed whose training
      examples have their lowest loss under another cluster model of the parent
      than before.
    max_far_clients: Share of the new clients that are far from every cluster:
      their loss under the best cluster model exceeds `far_quantile`, or no
      model has a finite one.
    max_loss_increase: Relative increase of the mean loss of the clients that
      stayed, each under its best cluster model; 1 is twice the loss.
    far_quantile: Quantile of the losses of the parent's clients on its own
      data, each under its best cluster model.
  """

  max_label_shift: float | None = None
  max_source_label_shift: float | None = None
  max_client_label_shift: float | None = None
  max_feature_shift: float | None = None
  max_source_feature_shift: float | None = None
  max_client_feature_shift: float | None = None
  max_new_clients: float | None = None
  max_departed_clients: float | None = None
  max_changed_clusters: float | None = None
  max_far_clients: float | None = None
  max_loss_increase: float | None = None
  far_quantile: float = 0.95

  def __post_init__(self):
    for measure, limit in self.thresholds().items():
      if limit is not None:
        checks.check_at_least(f'{_LIMIT}{measure}', limit, 0)
    checks.check_fraction('far_quantile', self.far_quantile)

  def thresholds(self) -> dict[str, float | None]:
    """Returns measure -> threshold."""
    return {
      field.name.removeprefix(_LIMIT): getattr(self, field.name)
      for field in dataclasses.fields(self)
      if field.name.startswith(_LIMIT)
    }


class Snapshot(NamedTuple):
  """Statistics of the dataset version of a run.

  Attributes:
    manifest: Manifest of the version.
    statistics: Its statistics.
  """

  manifest: Mapping[str, Any]
  statistics: statistics_lib.Statistics


class ClusterLosses(NamedTuple):
  """Losses of cluster models on clients' training examples.

  Attributes:
    client_ids: The participating clients.
    losses: float64 `[num_clients, num_clusters]`; inf where a model is not
      finite on a client, or the client has no examples.
    has_examples: Whether each client has examples, bool `[num_clients]`.
  """

  client_ids: Sequence[str]
  losses: np.ndarray
  has_examples: np.ndarray

  def with_examples(self) -> set[str]:
    """Returns the ids of the clients that have examples."""
    return {*itertools.compress(self.client_ids, self.has_examples)}


class Drift(NamedTuple):
  """Drift of a dataset version, or of its clusters.

  Attributes:
    measures: Measure -> value; None where it is not defined.
    missing: Measure -> why it is not defined.
    clients: Client id -> columns of the client.
    details: Further values, JSON-ready.
  """

  measures: dict[str, float | None]
  missing: dict[str, str]
  clients: dict[str, dict[str, Any]]
  details: dict[str, Any]


def of_data(now: Snapshot, before: Snapshot) -> Drift:
  """Measures the drift of the clients, their labels and features.

  Args:
    now: The version of the day.
    before: The version that the parent was trained on.

  Raises:
    DataError: If their examples differ in shape or meaning.
  """
  check_comparable(now.manifest, before.manifest)
  sources = _shifts_of_common(_sources(now), _sources(before))
  ours, theirs = _clients(now), _clients(before)
  stayed = _shifts_of_common(ours, theirs)
  clients = {
    client_id: {'status': _status(client_id, ours, theirs)}
    | stayed.get(client_id, {})
    for client_id in sorted({*ours, *theirs})
  }
  counts = {
    status: sum(row['status'] == status for row in clients.values())
    for status in (STAYED, NEW, DEPARTED)
  }
  pooled, pooled_before = _pool(now), _pool(before)
  overall = _shifts(pooled, pooled_before)
  measures, missing = {}, {}
  for shift in _SHIFTS:
    for name, values, reason in (
      (shift, [overall], ''),
      (f'source_{shift}', sources.values(), 'no source is in both versions'),
      (f'client_{shift}', stayed.values(), _NOBODY_STAYED),
    ):
      summary = np.mean if name.startswith('client') else np.max
      defined = [one[shift] for one in values if shift in one]
      # A sum in this order does not depend on the order of the clients.
      measures[name] = float(summary(sorted(defined))) if defined else None
      if not defined:
        missing[name] = reason
  measures['new_clients'] = counts[NEW] / len(ours)
  measures['departed_clients'] = counts[DEPARTED] / len(theirs)
  if 'feature_shift' not in overall:
    tokens = 'the features are ids of tokens'
    missing |= {name: tokens for name in measures if 'feature' in name}
  details = {
    'num_clients': counts,
    'sources': sources,
    'most_shifted_features': _most_shifted(pooled.x, pooled_before.x),
  }
  return Drift(measures, missing, clients, details)


def of_clusters(
  now: ClusterLosses, before: ClusterLosses, far_quantile: float
) -> Drift:
  """Measures the drift of the clients from the parent's cluster models.

  Args:
    now: Losses of the parent's models on the training examples of the day.
    before: Losses of the same models on the parent's own training examples.
    far_quantile: See `DriftConfig`.
  """
  found, known = _best_clusters(now), _best_clusters(before)
  if not known:
    return no_clusters('the parent has no client with examples and a loss')
  far_loss = float(
    np.quantile([loss for _, loss in known.values()], far_quantile)
  )
  clients: dict[str, dict[str, Any]] = {}
  for client_id, (cluster_id, loss) in known.items():
    clients[client_id] = {'parent_cluster_id': cluster_id, 'parent_loss': loss}
  for client_id, (cluster_id, loss) in found.items():
    clients.setdefault(client_id, {}).update(
      {'cluster_id': cluster_id, 'loss': loss}
    )
  for client_id in now.with_examples():
    _, loss = found.get(client_id, (None, np.inf))
    clients.setdefault(client_id, {})['is_far'] = int(loss > far_loss)
  is_far = [
    clients[client_id]['is_far']
    for client_id in now.with_examples() - set(before.client_ids)
  ]
  measures = dict.fromkeys(_OF_CLUSTERS) | {
    'far_clients': float(np.mean(is_far)) if is_far else 0.0
  }
  missing = {}
  stayed = sorted(now.with_examples() & before.with_examples())
  lost = [one for one in stayed if one not in found or one not in known]
  if lost or not stayed:
    reason = _NOBODY_STAYED
    if lost:
      reason = (
        f'{len(lost)} of {len(stayed)} clients that stayed have no finite '
        f'loss, such as {lost[0]!r}'
      )
    missing['changed_clusters'] = missing['loss_increase'] = reason
    return Drift(measures, missing, clients, {'far_loss': far_loss})
  changed = [found[one][0] != known[one][0] for one in stayed]
  measures['changed_clusters'] = float(np.mean(changed))
  loss, loss_before = (
    sum(side[one][1] for one in stayed) for side in (found, known)
  )
  if loss_before > 0:
    measures['loss_increase'] = loss / loss_before - 1
  else:
    missing['loss_increase'] = "the parent's loss on its own data is 0"
  return Drift(measures, missing, clients, {'far_loss': far_loss})


def no_clusters(reason: str) -> Drift:
  """Returns the drift from clusters that cannot be measured."""
  return Drift(
    dict.fromkeys(_OF_CLUSTERS), dict.fromkeys(_OF_CLUSTERS, reason), {}, {}
  )


def exceeded(
  measures: Mapping[str, float | None],
  missing: Mapping[str, str],
  config: DriftConfig,
) -> list[str]:
  """Returns one text for each threshold that does not hold.

  The threshold of a measure that is not defined does not hold.
  """
  texts = []
  for measure, limit in config.thresholds().items():
    if limit is None:
      continue
    value, option = measures[measure], f'config.drift.{_LIMIT}{measure}'
    if value is None:
      texts.append(
        f'{measure} is unknown ({missing[measure]}), but {option}={limit:g}'
      )
    elif not value <= limit:
      how = 'not at most' if np.isnan(value) else 'above'
      texts.append(f'{measure} is {value:.4g}, {how} {option}={limit:g}')
  return texts


def check_comparable(now: Mapping[str, Any], before: Mapping[str, Any]) -> None:
  """Raises DataError if two versions differ in shape or meaning of examples."""
  for name in ('task', 'num_classes', 'x_dtype', 'x_shape', 'y_shape'):
    ours, theirs = (one['schema'].get(name) for one in (now, before))
    if ours != theirs:
      raise errors.DataError(
        f'dataset version {now["version"]} has {name} {ours!r}, version '
        f'{before["version"]} of the parent {theirs!r}: their examples do not '
        'compare. Name a parent with examples of the same shape, or none.'
      )
  ours, theirs = (raw_features.of_manifest(one) for one in (now, before))
  difference = ours.difference(theirs)
  if difference is not None:
    raise errors.DataError(
      f'dataset versions {now["version"]} (here) and {before["version"]} '
      f'(there) encode raw data differently: {difference}. Build it with the '
      "parent's options, and what was fitted from its dataset "
      '(dataset.fitted_from), or name no parent.'
    )


class _Moments(NamedTuple):
  """Moments of some examples.

  Attributes:
    label_counts: `[num_classes]`; empty for regression.
    y: Mean and standard deviation of the label of a regression, `[2, 1]`.
    x: Means and standard deviations of the features, `[2, D]`; None for ids of
      tokens.
  """

  label_counts: np.ndarray
  y: np.ndarray | None
  x: np.ndarray | None


def _shifts(now: _Moments, before: _Moments) -> dict[str, float]:
  found = {}
  if now.y is not None and before.y is not None:
    found['label_shift'] = distances.standardized_shift(*now.y, *before.y)
  else:
    shares = [
      one.label_counts / one.label_counts.sum() for one in (now, before)
    ]
    found['label_shift'] = float(distances.total_variation(*shares))
  if now.x is not None and before.x is not None:
    found['feature_shift'] = distances.standardized_shift(*now.x, *before.x)
  return found


def _shifts_of_common(
  now: Mapping[str, _Moments | None], before: Mapping[str, _Moments | None]
) -> dict[str, dict[str, float]]:
  """Returns name -> shifts of the names with examples in both."""
  found = {}
  for name in now:
    ours, theirs = now[name], before.get(name)
    if ours is not None and theirs is not None:
      found[name] = _shifts(ours, theirs)
  return found


def _sources(snapshot: Snapshot) -> dict[str, _Moments]:
  """Returns the moments of the source distributions that have examples."""
  is_tokens = _is_tokens(snapshot)
  moments = {}
  totals = snapshot.statistics.totals[statistics_lib.SOURCE]
  for name, total in totals.items():
    if total['num_examples']:
      y, x = total.get('y'), total['features']
      moments[name] = _Moments(
        _count_labels(snapshot, total['label_counts']),
        np.array([[y['mean']], [y['std']]]) if y else None,
        None if is_tokens else np.array([x['mean'], x['std']]),
      )
  return moments


def _clients(snapshot: Snapshot) -> dict[str, _Moments | None]:
  """Returns the moments of the participating clients; None without examples."""
  is_tokens = _is_tokens(snapshot)
  moments = {}
  for row in snapshot.statistics.clients.to_pylist():
    if row['group'] != schema_lib.PARTICIPATING:
      continue
    moments[row['client_id']] = None
    if row['x_mean'] is not None:
      labels = _count_labels(
        snapshot,
        np.sum(
          [row[f'{split}_label_counts'] for split in schema_lib.SPLITS], axis=0
        ),
      )
      y, x = (
        np.array([[row[f'{name}_mean']], [row[f'{name}_std']]])
        if f'{name}_mean' in row
        else None
        for name in ('y', 'x')
      )
      moments[row['client_id']] = _Moments(labels, y, None if is_tokens else x)
  return moments


def _count_labels(snapshot: Snapshot, counts: Sequence[int]) -> np.ndarray:
  """Returns label counts `[num_classes]`, 0 for padded places."""
  labels = np.array(counts)
  special = snapshot.manifest.get('source_facts', {}).get('special_ids', {})
  if snapshot.manifest['schema']['y_shape'] and 'padding' in special:
    labels[special['padding']] = 0
  return labels


def _is_tokens(snapshot: Snapshot) -> bool:
  return schema_lib.Schema.from_dict(snapshot.manifest['schema']).has_tokens


def _pool(snapshot: Snapshot) -> _Moments:
  """Returns the moments of all examples together."""
  sources = _sources(snapshot)
  parts = [*sources.values()]
  totals = snapshot.statistics.totals[statistics_lib.SOURCE]
  weights = [totals[name]['num_examples'] for name in sources]

  def pool(columns: Iterable[np.ndarray | None]) -> np.ndarray | None:
    defined = [column for column in columns if column is not None]
    if not defined:
      return None
    means, stds = np.stack(defined, axis=1)
    mean = np.average(means, axis=0, weights=weights)
    squares = stds**2 + (means - mean) ** 2
    return np.stack([mean, np.sqrt(np.average(squares, 0, weights))])

  return _Moments(
    np.sum([part.label_counts for part in parts], axis=0),
    pool(part.y for part in parts),
    pool(part.x for part in parts),
  )


def _most_shifted(
  ours: np.ndarray | None, theirs: np.ndarray | None
) -> list[dict[str, float]]:
  """Returns the features of largest shift over all examples, at most five.

  Args:
    ours: Means and standard deviations of all features, `[2, D]`, if any.
    theirs: The same of the other version.
  """
  if ours is None or theirs is None:
    return []
  shifts = np.array(
    [
      distances.standardized_shift(*ours[:, [i]], *theirs[:, [i]])
      for i in range(ours.shape[1])
    ]
  )
  order = np.argsort(-shifts, kind='stable')[:_MAX_FEATURES]
  return [{'feature': int(i), 'shift': float(shifts[i])} for i in order]


def _status(
  client_id: str, now: Collection[str], before: Collection[str]
) -> str:
  if client_id not in before:
    return NEW
  return STAYED if client_id in now else DEPARTED


def _best_clusters(side: ClusterLosses) -> dict[str, tuple[int, float]]:
  """Returns client id -> cluster of lowest loss, and that loss."""
  best = side.losses.argmin(axis=1)
  return {
    client_id: (int(cluster_id), float(losses[cluster_id]))
    for client_id, cluster_id, losses in zip(
      side.client_ids, best, side.losses, strict=True
    )
    if np.isfinite(losses[cluster_id])
  }
