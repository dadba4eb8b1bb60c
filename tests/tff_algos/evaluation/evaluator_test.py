"""The evaluation contract against a NumPy evaluation of a real dataset."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import evaluated, raw_data, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.data import schema
from tff_algos.evaluation import evaluator, recovery
from tff_algos.numerics import statistics
from tff_algos.runtimes import client_sources, debug_runtime
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import loop


@pytest.fixture(scope='module', params=['classification', 'regression'])
def case(request, tmp_path_factory):
  made = evaluated.build(request.param, tmp_path_factory.mktemp('dataset'))
  with made.dataset:
    yield made


def _expected_participating(case, split, score):
  own, cluster = [], []
  best = case.importance.argmax(axis=1)
  examples = case.examples(case.dataset.client_ids, split)
  for i, some in enumerate(examples):
    cluster.append(case.scores(case.cluster_models, best[i], some))
    personal = case.scores(case.own_models, i, some)
    own.append(personal if case.was_drawn[i] else cluster[-1])
  expected = {}
  for kind, found in (('personalized', own), ('cluster', cluster)):
    prefix = f'participating/{split}/{kind}'
    values, losses = zip(*found, strict=True)
    expected[f'{prefix}/loss'] = np.concatenate(losses).mean()
    expected[f'{prefix}/loss_num_nan'] = 0
    expected |= evaluated.summary(f'{prefix}/{score}', case, values)
  return expected


def _expected_held_out(case, score):
  expected, table, winners = {}, [], []
  choose = np.argmax if case.is_classification else np.argmin
  for m, name in enumerate(case.dataset.source_names):
    held_out = case.dataset.held_out(m)
    found = [
      [
        values.mean()
        for values in case.scores(case.cluster_models, s, held_out)
      ]
      for s in range(evaluated.NUM_CLUSTERS)
    ]
    for s, (value, loss) in enumerate(found):
      expected[f'held_out/{name}/cluster_{s}/{score}'] = value
      expected[f'held_out/{name}/cluster_{s}/loss'] = loss
    winners.append(choose([value for value, _ in found]))
    values = sorted(
      (value for value, _ in found), reverse=case.is_classification
    )
    table.append(values)
  table = np.array(table)
  expected[f'held_out/mean/best_cluster/{score}'] = table[:, 0].mean()
  expected[f'held_out/mean/other_clusters/{score}'] = table[:, 1:].mean()
  expected['held_out/num_distinct_best_clusters'] = len(set(winners))
  return expected


def test_all_metrics_against_numpy(case):
  score = 'accuracy' if case.is_classification else 'mse'
  expected = _expected_held_out(case, score)
  for split in schema.SPLITS:
    expected.update(_expected_participating(case, split, score))
  expected.update(evaluated.expected_unseen(case, score)[0])
  mixture = case.dataset.true_mixture()
  found = recovery.recovery(case.importance.argmax(1), mixture.argmax(1))
  for name, value in found._asdict().items():
    expected[f'participating/membership/{name}'] = value
  expected['participating/membership/error'] = recovery.membership_error(
    case.importance, mixture
  )
  expected['participating/membership/num_undecided'] = 0
  metrics = case.evaluator.evaluate(case.server_state).metrics
  assert metrics.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(metrics[name], value, rtol=2e-5, err_msg=name)


def test_one_row_a_client_with_its_own_numbers(case):
  score = 'accuracy' if case.is_classification else 'mse'
  rows = [*case.evaluator.evaluate(case.server_state).clients]
  seen, unseen = rows[: case.num_clients], rows[case.num_clients :]
  assert [row['client_id'] for row in seen] == list(case.dataset.client_ids)
  assert {row['group'] for row in seen} == {'participating'}
  test = case.examples(case.dataset.client_ids, schema.TEST)
  for i, row in enumerate(seen):
    assert row['num_test_examples'] == len(test[i].y)
    assert row['cluster_id'] == case.importance[i].argmax()
    assert row['membership_1'] == case.importance[i, 1]
    assert row['true_mixture_0'] == case.dataset.true_mixture()[i, 0]
    expected = case.scores(case.cluster_models, row['cluster_id'], test[i])[0]
    np.testing.assert_allclose(
      row[f'test_cluster_{score}'],
      evaluated.mean(expected),
      rtol=2e-5,
    )
  ids = case.dataset.unseen_client_ids
  assert [row['client_id'] for row in unseen] == list(ids)
  _, chosen, _ = evaluated.expected_unseen(case, score)
  assert [row['cluster_id'] for row in unseen] == chosen


def test_unseen_client_chooses_by_training_loss_where_test_labels_would_not(
  case,
):
  """Random models until, on the test part, another cluster would be best."""
  generator = np.random.default_rng(17)
  for _ in range(200):
    case.set_states(generator)
    summary, chosen, best_on_test = evaluated.expected_unseen(case, 'score')
    if chosen != best_on_test:
      break
  assert chosen != best_on_test
  metrics, rows, _ = case.evaluator.evaluate(case.server_state)
  unseen = [row for row in rows if row['group'] == 'unseen']
  assert [row['cluster_id'] for row in unseen] == chosen
  name = case.algorithm.cluster_model.score_name
  np.testing.assert_allclose(
    metrics[f'unseen/test/cluster/{name}'],
    summary['unseen/test/cluster/score'],
    rtol=2e-5,
  )


def test_unseen_client_chooses_no_broken_cluster(case):
  """Whatever it chose before is broken now: it takes the best of the others."""
  case.set_states(np.random.default_rng(5))
  ids = case.dataset.unseen_client_ids
  examples = case.examples(ids, schema.TRAIN)
  losses = np.array(
    [
      [
        evaluated.mean(case.scores(case.cluster_models, s, some)[1])
        for s in range(evaluated.NUM_CLUSTERS)
      ]
      for some in examples
    ]
  )
  broken = int(losses[0].argmin())
  losses[:, broken] = np.inf
  kernels = case.cluster_models['kernel'].copy()
  kernels[broken] = np.nan
  state = case.server_state._replace(
    cluster_models={**case.cluster_models, 'kernel': kernels}
  )
  metrics, rows, _ = case.evaluator.evaluate(state)
  found = [row['cluster_id'] for row in rows if row['group'] == 'unseen']
  assert found == losses.argmin(axis=1).tolist()
  score = case.algorithm.cluster_model.score_name
  assert np.isfinite(metrics[f'unseen/test/cluster/{score}'])
  assert metrics[f'unseen/test/cluster/{score}_num_nan'] == 0
  held_out = np.array(
    [
      [
        metrics[f'held_out/{name}/cluster_{s}/{score}']
        for s in range(evaluated.NUM_CLUSTERS)
      ]
      for name in case.dataset.source_names
    ]
  )
  np.testing.assert_array_equal(
    np.isnan(held_out).all(axis=0), np.arange(evaluated.NUM_CLUSTERS) == broken
  )
  best = np.nanmax if case.is_classification else np.nanmin
  np.testing.assert_allclose(
    metrics[f'held_out/mean/best_cluster/{score}'],
    best(held_out, axis=1).mean(),
    rtol=1e-12,
  )
  # One of three clusters is broken, so that one other remains.
  others = np.nansum(held_out, axis=1) - best(held_out, axis=1)
  np.testing.assert_allclose(
    metrics[f'held_out/mean/other_clusters/{score}'],
    others.mean(),
    rtol=1e-12,
  )


def test_a_model_that_overflows_on_some_held_out_examples_has_no_score(
  case, monkeypatch
):
  """Nor is it the best, as it would be on the others alone."""
  weight = np.ones([4, evaluated.NUM_CLUSTERS])
  total = np.full_like(weight, 0.5)
  weight[1, 0] = total[1, 0] = 0.0
  total[0, 0] = 1.0 if case.is_classification else 0.1
  stat = statistics.MeanStat(total, weight)
  held_out = types.SimpleNamespace(
    population=types.SimpleNamespace(num_clients=4),
    source_index=np.array([0, 0, 1, 1]),
  )
  monkeypatch.setattr(case.evaluator, '_held_out', held_out)
  monkeypatch.setattr(
    case.evaluator, '_run', lambda *_: {'score': stat, 'loss': stat}
  )
  found = case.evaluator._evaluate_held_out(None)
  score, first = case.algorithm.cluster_model.score_name, 'held_out'
  first += f'/{case.dataset.source_names[0]}'
  assert np.isnan(found[f'{first}/cluster_0/{score}'])
  assert found[f'{first}/cluster_1/{score}'] == 0.5
  assert found[f'held_out/mean/best_cluster/{score}'] == 0.5


def test_memberships_are_those_of_the_participating_clients(case):
  memberships = case.evaluator.evaluate(case.server_state).memberships
  assert memberships.dtype == np.float32
  np.testing.assert_array_equal(memberships, case.importance)


def test_states_are_held_for_some_clients_at_a_time(case, monkeypatch):
  whole = case.evaluator.evaluate(case.server_state)
  runtime, sizes = case.evaluator._runtime, []
  run = runtime.run

  def counted(phase, server_state, cohort):
    if phase.uses_client_state:
      sizes.append(cohort.size)
    return run(phase, server_state, cohort)

  monkeypatch.setattr(runtime, 'run', counted)
  monkeypatch.setattr(evaluator, '_STATES_BYTES', 2 * case.store.state_bytes())
  parts = case.evaluator.evaluate(case.server_state)
  assert max(sizes) == 2
  np.testing.assert_allclose(
    list(parts.metrics.values()), list(whole.metrics.values()), rtol=1e-5
  )
  np.testing.assert_allclose(parts.memberships, whole.memberships, rtol=1e-5)


def test_planted_truth_is_the_mixture(case):
  planted = case.evaluator.planted
  assert planted.names == tuple(case.dataset.source_names)
  np.testing.assert_array_equal(planted.mixture, case.dataset.true_mixture())
  assert len(planted.unseen_mixture) == len(case.dataset.unseen_client_ids)


def test_evaluation_changes_no_state(case):
  before = case.store.load(np.arange(case.num_clients))
  first = case.evaluator.evaluate(case.server_state).metrics
  np.testing.assert_equal(
    first, case.evaluator.evaluate(case.server_state).metrics
  )
  np.testing.assert_equal(before, case.store.load(np.arange(case.num_clients)))


def test_honest_clients_have_means_of_their_own(case, monkeypatch):
  is_attacker = np.arange(case.num_clients) % 2 == 0
  monkeypatch.setattr(case.evaluator, '_is_attacker', is_attacker)
  found = case.evaluator.evaluate(case.server_state)
  rows = [*found.clients][: case.num_clients]
  assert [row['is_attacker'] for row in rows] == is_attacker.tolist()
  for split, kind in itertools.product(
    schema.SPLITS, ('personalized', 'cluster')
  ):
    name = f'{split}_{kind}_{case.algorithm.cluster_model.score_name}'
    values, weights = np.transpose(
      [
        (row[name], row[f'num_{split}_examples'])
        for row in rows
        if not row['is_attacker'] and row[f'num_{split}_examples']
      ]
    )
    name = f'attack/honest/{name.replace("_", "/")}'
    expected = np.average(values, weights=weights)
    assert found.metrics[name] == pytest.approx(expected)
    assert found.metrics[f'{name}_num_nan'] == 0


def test_an_attack_without_attackers_adds_nothing(case, monkeypatch):
  before = case.evaluator.evaluate(case.server_state)
  nobody = np.zeros(case.num_clients, bool)
  monkeypatch.setattr(case.evaluator, '_is_attacker', nobody)
  found = case.evaluator.evaluate(case.server_state)
  assert found.metrics.keys() == before.metrics.keys()
  assert [*next(iter(found.clients))] == [*next(iter(before.clients))]


def test_honest_clients_have_the_weights_of_all(case, monkeypatch):
  """An attacker without scored labels changes no mean."""
  one = case.evaluator
  monkeypatch.setattr(
    one, '_num_scored', lambda scores, losses, sizes: np.arange(len(sizes))
  )
  is_attacker = np.arange(len(case.dataset.client_ids)) == 0
  monkeypatch.setattr(one, '_is_attacker', is_attacker)
  metrics = one.evaluate(case.server_state).metrics
  name = f'test/personalized/{case.algorithm.cluster_model.score_name}'
  everyone = metrics[f'participating/{name}']
  assert metrics[f'attack/honest/{name}'] == pytest.approx(everyone, rel=1e-6)


def test_losses_have_weights_of_their_own(case, monkeypatch):
  """With labels at several places losses count labels that are not scored."""
  one = case.evaluator
  run, seen = one._run, {}

  def with_more_labels(phase, *args):
    found = {**run(phase, *args)}
    total, weight = found['loss']
    factors = np.reshape(
      1 + np.arange(len(weight)), [-1, *[1] * (weight.ndim - 1)]
    )
    found['loss'] = statistics.MeanStat(total * factors, weight * factors)
    if 'membership' in found:
      seen.setdefault('loss', found['loss'])
    return found

  monkeypatch.setattr(one, '_run', with_more_labels)
  monkeypatch.setattr(one, '_num_scored', lambda stat, *others: stat.weight)
  metrics = one.evaluate(case.server_state).metrics
  total, weight = seen['loss']
  np.testing.assert_allclose(
    metrics['participating/train/personalized/loss'],
    np.sum(total) / np.sum(weight),
    rtol=1e-6,
  )


def test_each_model_has_the_weights_of_its_own_scores(case, monkeypatch):
  """A personalized model that is not finite changes no weight of a cluster's."""
  one = case.evaluator
  run, seen = one._run, []

  def with_a_nan(phase, *args):
    found = {**run(phase, *args)}
    if 'membership' in found:
      for key in ('loss', 'score'):
        found[key] = statistics.MeanStat(*(1 * leaf for leaf in found[key]))
        for leaf in found[key]:
          leaf[0] = 0
      seen.append(found['membership'])
    return found

  monkeypatch.setattr(one, '_run', with_a_nan)
  monkeypatch.setattr(one, '_num_scored', lambda stat, *others: stat.weight * 7)
  weighed = one.evaluate(case.server_state).metrics
  monkeypatch.setattr(one, '_run', run)
  expected = one.evaluate(case.server_state).metrics
  assert seen
  score = 'accuracy' if case.is_classification else 'mse'
  name = f'participating/train/cluster/{score}'
  assert weighed[name] == expected[name]


def test_a_model_that_serves_all_clients_is_scored_once(case, monkeypatch):
  model = case.algorithm.cluster_model
  algorithm = algorithms.build_algorithm(
    algorithms.parse_config({'name': 'fed_avg'}), model
  )
  state = algorithm.init_server_state(tf.constant([1, 2]), case.num_clients)
  found = []
  for serves_global in (True, False):
    changed = dataclasses.replace(algorithm, serves_global=serves_global)
    source = client_sources.DatasetSource(case.dataset, schema.TRAIN)
    store = loop.build_store(changed, source.population, 0, '', 'memory')
    runtime = toys.graph_runtime(changed, case.num_clients)
    names, run = [], runtime.run

    def spy(phase, *args, run=run, names=names):
      names.append(phase.name)
      return run(phase, *args)

    monkeypatch.setattr(runtime, 'run', spy)
    one = evaluator.Evaluator(changed, case.dataset, runtime, store)
    seen = one.evaluate(cohort_lib.to_numpy(state))
    found.append((seen.metrics, [*seen.clients]))
    # Three splits, the held-out examples, and the unseen clients.
    assert names.count('evaluate_clusters') == 5
    assert names.count('evaluate_personalized') == (0 if serves_global else 3)
  np.testing.assert_equal(*found)


def test_best_round_is_chosen_on_validation(case):
  score = 'accuracy' if case.is_classification else 'mse'
  metric = f'participating/validation/personalized/{score}'
  assert case.evaluator.selection_metric == metric
  model = case.algorithm.cluster_model
  assert model.higher_is_better == case.is_classification
  assert metric in case.evaluator.evaluate(case.server_state).metrics


def test_majority_class(case):
  if not case.is_classification:
    assert not case.evaluator.majority_class()
    return
  train, test = (
    [some.y for some in case.examples(case.dataset.client_ids, split)]
    for split in (schema.TRAIN, schema.TEST)
  )
  overall = np.bincount(np.concatenate(train), minlength=10).argmax()
  own = [np.bincount(labels, minlength=10).argmax() for labels in train]
  expected = {
    'global': np.mean(np.concatenate(test) == overall),
    'per_client': np.mean(
      np.concatenate([y == label for y, label in zip(test, own, strict=True)])
    ),
  }
  for index, name in enumerate(case.dataset.source_names):
    _, counts = np.unique(case.dataset.held_out(index).y, return_counts=True)
    expected[f'held_out/{name}'] = counts.max() / counts.sum()
  assert case.evaluator.majority_class() == pytest.approx(expected)


@pytest.mark.parametrize(
  'build_runtime', [toys.graph_runtime, debug_runtime.DebugRuntime]
)
def test_empty_split_gives_nan_and_no_failure(tmp_path, build_runtime):
  config = raw_data.digits_config(
    splits={
      'validation_ratio': 0.0,
      'test_ratio': 0.3,
      'held_out_fraction': 0.0,
    },
    partition={'law': 'iid', 'num_clients': 3},
  )
  empty = evaluated.Case(tmp_path, config, 'logistic_regression', build_runtime)
  with empty.dataset:
    metrics = empty.evaluator.evaluate(empty.server_state).metrics
  assert np.isnan(metrics['participating/validation/personalized/accuracy'])
  assert np.isnan(metrics['held_out/upright/cluster_0/accuracy'])
  assert np.isnan(metrics['held_out/mean/best_cluster/accuracy'])
  assert metrics['participating/test/personalized/accuracy_num_nan'] == 0
  assert not [name for name in metrics if name.startswith('unseen')]


def _recovery_metrics(folder, **options):
  config = raw_data.digits_config(
    partition={'law': 'iid', 'num_clients': 3}, **options
  )
  made = evaluated.Case(
    folder, config, 'logistic_regression', debug_runtime.DebugRuntime
  )
  with made.dataset:
    metrics = made.evaluator.evaluate(made.server_state).metrics
    return made.evaluator.planted, {
      name.removeprefix('participating/membership/')
      for name in metrics
      if name.startswith('participating/membership/')
    }


def test_clients_with_equal_mixtures_have_no_clusters_to_recover(tmp_path):
  planted, names = _recovery_metrics(tmp_path)
  assert len(planted.names) == 2
  assert names == {'error', 'num_undecided'}


def test_a_single_source_is_no_ground_truth(tmp_path):
  distributions = {}
  assert _recovery_metrics(tmp_path, distributions=distributions) == (
    None,
    set(),
  )
