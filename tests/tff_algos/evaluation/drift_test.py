"""Drift against NumPy on the raw examples, and by hand."""

import dataclasses

import numpy as np
import pyarrow
import pytest

from tff_algos.core import errors
from tff_algos.data import statistics
from tff_algos.evaluation import drift

_SOURCES = ('upright', 'rotated')


def _examples(seed, num_clients=6, is_regression=False):
  """Returns client id -> (x, y, source); one client has no examples."""
  generator = np.random.default_rng(seed)
  clients = {}
  for index in range(num_clients):
    n = 0 if index == 3 else 5 + index
    x = generator.normal(index, 1 + index, (n, 4))
    y = generator.integers(0, 3, n)
    if is_regression:
      y = generator.normal(size=n)
    clients[f'client_{index}'] = x, y, generator.integers(0, 2, n)
  return clients


def _shift(clients, ids, *, x=0.0, y=0):
  """Returns the clients with the features and labels of some moved."""
  return clients | {
    one: (clients[one][0] + x, (clients[one][1] + y) % 3, clients[one][2])
    for one in ids
  }


def _moments(values, axis=None):
  return {
    'mean': np.mean(values, axis).tolist(),
    'std': np.std(values, axis).tolist(),
  }


def _snapshot(clients, *, unseen=(), order=None, **schema):
  """Returns what the pipeline writes, computed from the raw examples."""
  is_regression = schema.get('task') == 'regression'
  rows, totals = [], {}
  for client_id in order or clients:
    x, y, source = clients[client_id]
    row = {
      'client_id': client_id,
      'group': 'unseen' if client_id in unseen else 'participating',
    }
    # The splits are a third each, as nearly as it goes.
    for at, split in enumerate(('train', 'validation', 'test')):
      labels = [] if is_regression else np.bincount(y[at::3], minlength=3)
      row[f'{split}_label_counts'] = list(map(int, labels))
      row[f'{split}_source_counts'] = np.bincount(
        source[at::3], minlength=2
      ).tolist()
    for name, values in (('x', x), *((('y', y),) if is_regression else ())):
      for what in ('mean', 'std'):
        found = float(getattr(np, what)(values)) if len(y) else None
        row[f'{name}_{what}'] = found
    rows.append(row)
  xs, ys, of = (
    np.concatenate(part) for part in zip(*clients.values(), strict=True)
  )
  for s, name in enumerate(_SOURCES):
    x, y = xs[of == s], ys[of == s]
    totals[name] = {
      'num_examples': len(y),
      'label_counts': []
      if is_regression
      else np.bincount(y, minlength=3).tolist(),
      'features': _moments(x, 0) if len(y) else None,
    }
    if is_regression:
      totals[name]['y'] = _moments(y)
  return drift.Snapshot(
    {
      'version': 'some',
      'recipe': {'source': {'options': {}}},
      'source_facts': {},
      'schema': {
        'task': 'classification',
        'num_classes': 0 if is_regression else 3,
        'x_dtype': 'float32',
        'x_shape': [4],
        'x_scale': 1.0,
        'x_offset': 0.0,
        'y_shape': [],
        'source_names': [*_SOURCES],
      }
      | schema,
    },
    statistics.Statistics(
      {statistics.SOURCE: totals}, pyarrow.Table.from_pylist(rows), ''
    ),
  )


def _total_variation(first, second):
  p, q = (np.bincount(one, minlength=3) / len(one) for one in (first, second))
  return np.abs(p - q).sum() / 2


def _standardized(first, second):
  """RMS over the columns, each by the variance of the equal mixture."""
  first, second = (np.reshape(a, (len(a), -1)) for a in (first, second))
  shifts = []
  for a, b in zip(first.T, second.T, strict=True):
    variance = (a.var() + b.var()) / 2 + (a.mean() - b.mean()) ** 2 / 4
    shifts.append((a.mean() - b.mean()) ** 2 / variance)
  return np.mean(shifts) ** 0.5


def _all(clients, part):
  return np.concatenate([client[part] for client in clients.values()])


def test_padded_places_are_no_labels():
  """Shorter posts of the same words: 1 and 2, and padding 0."""
  x, source = np.zeros((6, 4)), np.zeros(6, int)
  long, short = np.array([1, 2, 2, 1, 2, 2]), np.array([1, 2, 2, 0, 0, 0])
  now, before = (
    _snapshot({'ann': (x, y, source)}, y_shape=[2]) for y in (short, long)
  )
  assert drift.of_data(now, before).measures['label_shift'] == 0.5
  for one in (now, before):
    one.manifest['source_facts'] = {'special_ids': {'padding': 0}}
  found = drift.of_data(now, before)
  assert found.measures['label_shift'] == 0
  assert found.clients['ann']['label_shift'] == 0


def test_measures_are_those_of_the_raw_examples():
  now, before = _examples(1, 8), _examples(0, 6)
  del now['client_0']
  found = drift.of_data(_snapshot(now), _snapshot(before))
  assert not found.missing
  stayed = ['client_1', 'client_2', 'client_4', 'client_5']
  labels = [_total_variation(now[i][1], before[i][1]) for i in stayed]
  features = [
    _standardized(now[i][0].ravel(), before[i][0].ravel()) for i in stayed
  ]
  of_sources = np.array(
    [
      [
        distance(
          *(_all(side, part)[_all(side, 2) == s] for side in (now, before))
        )
        for distance, part in ((_total_variation, 1), (_standardized, 0))
      ]
      for s in range(2)
    ]
  )
  expected = {
    'label_shift': _total_variation(_all(now, 1), _all(before, 1)),
    'source_label_shift': of_sources[:, 0].max(),
    'client_label_shift': np.mean(labels),
    'feature_shift': _standardized(_all(now, 0), _all(before, 0)),
    'source_feature_shift': of_sources[:, 1].max(),
    'client_feature_shift': np.mean(features),
    'new_clients': 2 / 7,
    'departed_clients': 1 / 6,
  }
  assert found.measures == pytest.approx(expected)
  assert [*found.measures] == [*expected]
  assert found.clients['client_4'] == {
    'status': 'stayed',
    'label_shift': pytest.approx(labels[2]),
    'feature_shift': pytest.approx(features[2]),
  }
  assert found.clients['client_0'] == {'status': 'departed'}
  assert found.clients['client_3'] == {'status': 'stayed'}
  assert found.clients['client_6'] == {'status': 'new'}
  assert found.details['num_clients'] == {'stayed': 5, 'new': 2, 'departed': 1}
  for s, name in enumerate(_SOURCES):
    shifts = found.details['sources'][name]
    assert [*shifts.values()] == pytest.approx(of_sources[s].tolist())


def test_a_regression_compares_the_means_of_its_labels():
  now, before = (_examples(seed, is_regression=True) for seed in (1, 0))
  found = drift.of_data(
    *(_snapshot(one, task='regression') for one in (now, before))
  )
  assert found.measures['label_shift'] == pytest.approx(
    _standardized(_all(now, 1), _all(before, 1))
  )
  assert found.clients['client_2']['label_shift'] == pytest.approx(
    _standardized(now['client_2'][1], before['client_2'][1])
  )


@pytest.mark.parametrize('task', ['classification', 'regression'])
def test_equal_data_do_not_drift_in_any_order(task):
  clients = _examples(0, is_regression=task == 'regression')
  now = _snapshot(clients, order=sorted(clients, reverse=True), task=task)
  found = drift.of_data(now, _snapshot(clients, task=task))
  assert set(found.measures.values()) == {0.0}
  assert not found.missing


def test_order_of_the_clients_changes_no_bit():
  before = _snapshot(_examples(0))
  now = _examples(1)
  found = drift.of_data(_snapshot(now), before)
  other = drift.of_data(_snapshot(now, order=sorted(now, reverse=True)), before)
  assert found == other


def test_planted_shifts_are_found_where_they_are():
  before = _examples(0)
  moved = np.array([0, 0, 50.0, 0])
  found = drift.of_data(
    _snapshot(_shift(before, ['client_2'], x=moved, y=1)), _snapshot(before)
  )
  shifted = {
    client_id
    for client_id, row in found.clients.items()
    if row.get('label_shift') or row.get('feature_shift')
  }
  assert shifted == {'client_2'}
  first, second, *_ = found.details['most_shifted_features']
  assert first['feature'] == 2 and first['shift'] > 0.3
  assert second['shift'] == 0
  assert 0 < found.measures['label_shift'] < 0.2
  everywhere = drift.of_data(
    _snapshot(_shift(before, before, x=1000.0)), _snapshot(before)
  )
  assert everywhere.measures['feature_shift'] > 1.9  # At most 2.
  assert everywhere.measures['label_shift'] == 0


def test_unseen_clients_are_no_part_of_the_population():
  clients = _examples(0)
  found = drift.of_data(
    _snapshot(clients, unseen=['client_5']),
    _snapshot(clients, unseen=['client_0']),
  )
  assert found.clients['client_5']['status'] == 'departed'
  assert found.clients['client_0']['status'] == 'new'


def test_what_has_nothing_in_common_is_missing_with_a_reason():
  before = _examples(0)
  now = {f'other_{client_id}': one for client_id, one in before.items()}
  found = drift.of_data(_snapshot(now), _snapshot(before))
  assert found.measures['client_label_shift'] is None
  assert found.missing == dict.fromkeys(
    ('client_label_shift', 'client_feature_shift'),
    'no client with examples is in both versions',
  )
  assert found.measures['new_clients'] == 1
  assert found.measures['departed_clients'] == 1
  assert found.measures['label_shift'] == 0


def test_ids_of_tokens_have_no_feature_shift():
  both = [_snapshot(_examples(seed), x_dtype='int32') for seed in (0, 1)]
  found = drift.of_data(*both)
  assert found.measures['feature_shift'] is None
  assert found.measures['client_label_shift'] > 0
  assert {*found.missing.values()} == {'the features are ids of tokens'}
  assert found.details['most_shifted_features'] == []


@pytest.mark.parametrize(
  ('name', 'value'), [('x_shape', [5]), ('num_classes', 4), ('y_shape', [2])]
)
def test_examples_of_another_shape_are_refused(name, value):
  with pytest.raises(errors.DataError, match=f'{name} .*Name a parent'):
    drift.of_data(
      _snapshot(_examples(0), **{name: value}), _snapshot(_examples(0))
    )


def test_another_encoding_is_refused():
  one = _snapshot(_examples(0))
  spec = {
    'features': [{'name': 'a'}],
    'fitted': {'a': {'mean': 1.0, 'variance': 1.0}},
  }
  moved = {**spec, 'fitted': {'a': {'mean': 2.0, 'variance': 1.0}}}
  now, before = (
    one._replace(manifest=one.manifest | {'features': features})
    for features in (spec, moved)
  )
  with pytest.raises(errors.DataError, match='fitted.a.mean: 2.0 there, 1.0'):
    drift.of_data(now, before)


def _losses(**clients):
  """Returns the losses of clients; None for a client without examples."""
  nothing = [np.inf, np.inf]
  losses = [nothing if one is None else one for one in clients.values()]
  has_examples = [one is not None for one in clients.values()]
  return drift.ClusterLosses(
    [*clients], np.array(losses, float), np.array(has_examples)
  )


def test_clusters_by_hand():
  before = _losses(a=[1, 2], b=[4, 3], c=[5, 2], d=None, e=[1, 6])
  now = _losses(a=[3, 2], b=[9, 4], d=[1, 2], f=[3, 7], g=[2.9, 8], e=[1, 6])
  # Best losses before: 1, 3, 2, 1; their median is 1.5, the quantile 1 is 3.
  found = drift.of_clusters(now, before, 1.0)
  assert found.details == {'far_loss': 3.0}
  assert found.measures == {
    'changed_clusters': 1 / 3,  # a of a, b, e
    'far_clients': 0.0,  # f and g are new; d is known, without a loss then.
    'loss_increase': pytest.approx((2 + 4 + 1) / (1 + 3 + 1) - 1),
  }
  assert found.clients['a'] == {
    'parent_cluster_id': 0,
    'parent_loss': 1.0,
    'cluster_id': 1,
    'loss': 2.0,
    'is_far': 0,
  }
  assert found.clients['c'] == {'parent_cluster_id': 1, 'parent_loss': 2.0}
  assert found.clients['d'] == {'cluster_id': 0, 'loss': 1.0, 'is_far': 0}
  assert found.clients['b']['is_far'] == 1
  assert drift.of_clusters(now, before, 0.98).measures['far_clients'] == 0.5
  assert drift.of_clusters(now, before, 0.5).measures['far_clients'] == 1


def test_new_clients_without_a_finite_loss_are_far():
  now = _losses(a=[1, 2], b=[np.inf] * 2, c=[1, 2], d=None, e=[1, np.inf])
  found = drift.of_clusters(now, _losses(a=[1, 2]), 1.0)
  assert found.measures == {
    'changed_clusters': 0.0,
    'far_clients': 1 / 3,  # Of b, c and e: d has no examples.
    'loss_increase': 0.0,
  }
  assert found.clients['b'] == {'is_far': 1} and 'd' not in found.clients


def test_the_clients_before_are_read_as_often_for_many_clients():
  class Counted(list):
    num_reads = 0

    def __iter__(self):
      self.num_reads += 1
      return super().__iter__()

  counts = []
  for num in (2, 20):
    losses = _losses(**{f'c{i}': [1, 2] for i in range(num)})
    before = losses._replace(client_ids=Counted(losses.client_ids))
    drift.of_clusters(losses, before, 1.0)
    counts.append(before.client_ids.num_reads)
  assert counts[0] == counts[1] > 0


@pytest.mark.parametrize('is_now', [True, False])
def test_a_client_that_stayed_without_a_finite_loss_makes_measures_unknown(
  is_now,
):
  sides = _losses(a=[1, 2], b=[np.inf] * 2), _losses(a=[1, 2], b=[1, 2])
  found = drift.of_clusters(*sides[:: 1 if is_now else -1], 1.0)
  assert found.measures == {
    'changed_clusters': None,
    'far_clients': 0.0,
    'loss_increase': None,
  }
  assert {*found.missing.values()} == {
    "1 of 2 clients that stayed have no finite loss, such as 'b'"
  }
  assert found.clients['b']['is_far'] == int(is_now)


def test_equal_losses_do_not_drift():
  before = _losses(a=[1, 2], b=[4, 3])
  found = drift.of_clusters(_losses(b=[4, 3], a=[1, 2]), before, 0.5)
  assert {*found.measures.values()} == {0.0}
  assert not found.missing


def test_clusters_that_cannot_be_compared():
  nothing = _losses(a=None)
  found = drift.of_clusters(_losses(b=[1, 2]), nothing, 0.5)
  assert {*found.measures.values()} == {None}
  assert found.missing.keys() == found.measures.keys()
  found = drift.of_clusters(_losses(b=[1, 2]), _losses(a=[1, 2]), 0.5)
  assert found.measures['far_clients'] == 0
  assert found.missing.keys() == {'changed_clusters', 'loss_increase'}
  found = drift.of_clusters(_losses(a=[1, 2]), _losses(a=[0, 2]), 0.5)
  assert found.measures['changed_clusters'] == 0
  assert found.missing == {
    'loss_increase': "the parent's loss on its own data is 0"
  }


def test_a_threshold_names_measure_value_and_option():
  config = drift.DriftConfig(max_label_shift=0.1, max_far_clients=0.2)
  measures = {'label_shift': 0.12345, 'far_clients': 0.2, 'new_clients': 1.0}
  assert drift.exceeded(measures, {}, config) == [
    'label_shift is 0.1235, above config.drift.max_label_shift=0.1'
  ]
  assert not drift.exceeded(measures, {}, drift.DriftConfig())
  (text,) = drift.exceeded({**measures, 'label_shift': np.nan}, {}, config)
  assert text.startswith('label_shift is nan')


def test_the_threshold_of_an_unknown_measure_does_not_hold():
  (text,) = drift.exceeded(
    {'far_clients': None},
    {'far_clients': 'its data were removed'},
    drift.DriftConfig(max_far_clients=0.2),
  )
  assert text == (
    'far_clients is unknown (its data were removed), but '
    'config.drift.max_far_clients=0.2'
  )


def test_every_measure_has_a_threshold():
  data = drift.of_data(*[_snapshot(_examples(0))] * 2)
  clusters = drift.no_clusters('')
  assert [*drift.DriftConfig().thresholds()] == [
    *data.measures,
    *clusters.measures,
  ]


@pytest.mark.parametrize(
  ('option', 'value'),
  [('max_label_shift', -0.1), ('max_new_clients', np.inf), ('far_quantile', 2)],
)
def test_options_out_of_range_are_refused(option, value):
  with pytest.raises(errors.ConfigError, match=f'{option} must be'):
    dataclasses.replace(drift.DriftConfig(), **{option: value})
