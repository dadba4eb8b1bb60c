"""Scores of two exports, against NumPy's own linear models."""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from pipelines.scoring import bundles
from tests.testing import exportable, scoring
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments.production import gate_scores
from tff_algos.export import cluster_models, personalized_models

# The champion knows fewer clients than the candidate.
_CHAMPION_CLIENTS = exportable.CLIENT_IDS[:2]
_SWAPPED = [1, 0]


@pytest.fixture(name='exports', scope='module')
def make_exports(tmp_path_factory):
  """Champion and candidate, whose clusters and clients are swapped, loaded."""
  folder = tmp_path_factory.mktemp('gate')
  scoring.build_dataset_of_known_clients(folder)
  exportable.write_all(folder / 'candidate')
  model = exportable.linear_model()
  server_state, states = exportable.states(model)
  swapped = {
    name: value[_SWAPPED]
    for name, value in server_state.cluster_weights.items()
  }
  cluster_models.export_cluster_models(
    folder / 'champion' / 'cluster_models',
    exportable.algorithm(model),
    server_state._replace(cluster_weights=swapped),
    exportable.sample_inputs(),
    exportable.PROVENANCE,
  )
  leading = exportable.tf.nest.map_structure(lambda leaf: leaf[:2], states)
  personalized_models.export_personalized_models(
    folder / 'champion' / 'personalized_models',
    exportable.algorithm(model),
    server_state,
    _CHAMPION_CLIENTS[::-1],
    exportable.loading(leading),
    exportable.sample_inputs(),
    exportable.PROVENANCE,
  )
  with dataset_lib.FederatedDataset.open(folder / 'dataset') as dataset:
    champion, candidate = (
      gate_scores.load(
        bundles.find(
          folder / name,
          gate_scores.SCORING,
          {},
          dataset.schema,
          dataset.feature_spec,
        )
      )
      for name in ('champion', 'candidate')
    )
    yield dataset, champion, candidate


def _correct(weights, index, examples):
  logits = exportable.oracle_logits(weights, index, examples.x)
  return (logits.argmax(axis=1) == examples.y).astype(float)


def _picked(weights, examples):
  losses = []
  for cluster_id in range(2):
    logits = exportable.oracle_logits(weights, cluster_id, examples.x)
    rows = np.arange(len(examples.y))
    losses.append(-np.log(exportable.softmax(logits)[rows, examples.y]).mean())
  return int(np.argmin(losses))


def test_each_client_is_scored_by_the_model_that_serves_it(exports):
  dataset, champion, candidate = exports
  model = exportable.linear_model()
  server_state, states = exportable.states(model)
  clusters, own = server_state.cluster_weights, states.personalized_weights
  found = gate_scores.score_clients(champion, candidate, dataset, model)
  assert [one.client_id for one in found] == sorted(scoring.CLIENT_IDS)
  for one in found:
    test = dataset.examples(one.client_id, 'test')
    picked = _picked(clusters, dataset.examples(one.client_id, 'train'))
    by_cluster = _correct(clusters, picked, test)
    expected_candidate, expected_champion = by_cluster, by_cluster
    if one.client_id in exportable.CLIENT_IDS:
      index = exportable.CLIENT_IDS.index(one.client_id)
      expected_candidate = _correct(own, index, test)
    if one.client_id in _CHAMPION_CLIENTS:
      index = _CHAMPION_CLIENTS[::-1].index(one.client_id)
      expected_champion = _correct(own, index, test)
    np.testing.assert_array_equal(one.candidate, expected_candidate)
    np.testing.assert_array_equal(one.champion, expected_champion)
    assert one.is_known == (one.client_id in _CHAMPION_CLIENTS)
    assert one.cluster_id == picked
    assert one.group == 'participating'
    assert one.planted == -1
    assert one.means() == pytest.approx(
      (expected_champion.mean(), expected_candidate.mean())
    )


_SCORES = gate_scores.Scores(
  client_id='a',
  group='unseen',
  is_known=False,
  cluster_id=0,
  planted=-1,
  source=np.array([0, 1, 1, 0]),
  weights=np.array([1.0, 3.0, 1.0, 0.0]),
  champion=np.array([1.0, 1.0, 0.0, 0.0]),
  candidate=np.array([0.0, 0.0, 1.0, 1.0]),
)


def test_means_of_one_source_are_weighted():
  one = _SCORES
  assert one.means() == pytest.approx((0.8, 0.2))
  assert one.means(1) == pytest.approx((0.75, 0.25))
  assert one.means(0) == (1, 0)
  assert one.means(2) is None


def test_means_of_one_source_are_finite_if_its_scores_are():
  one = _SCORES._replace(
    source=np.array([0, 1, 1, 1]),
    champion=np.array([1.0, 1.0, 0.0, np.nan]),
    candidate=np.array([np.nan, 0.0, 1.0, 1.0]),
  )
  assert one.means(1) == pytest.approx((0.75, 0.25))
  for source in (None, 0):
    np.testing.assert_equal(one.means(source)[1], np.nan)


def test_best_cluster_on_held_out_examples(exports):
  """Its number does not matter: the champion's clusters are swapped."""
  dataset, champion, candidate = exports
  model, examples = exportable.linear_model(), dataset.held_out(0)
  clusters = exportable.states(model)[0].cluster_weights
  expected = max(
    (_correct(clusters, cluster_id, examples) for cluster_id in range(2)),
    key=np.mean,
  )
  for exported in (champion, candidate):
    scores = gate_scores.best_cluster_scores(exported, examples, model)
    np.testing.assert_array_equal(scores, expected)


def _exported(name, of_clusters):
  """Clusters that answer every request with the same outputs, `[n, ...]`."""
  answer = lambda request, max_rows: bundles.Answer(
    request.choice.cluster_id, {name: of_clusters[request.choice.cluster_id]}
  )
  loaded = types.SimpleNamespace(answer=answer)
  return gate_scores.Exported((), loaded, (), len(of_clusters))


def _examples(y):
  zeros = np.zeros(len(y), np.int32)
  return schema.Examples(np.zeros([len(y), exportable.NUM_FEATURES]), y, zeros)


def test_no_class_is_predicted_by_logits_that_are_not_finite():
  """Their largest is that of class 0, or of an infinite one."""
  logits = np.array(
    [[np.nan] * 3, [1, 0, np.nan], [0, np.inf, 0], [3, 1, 2], [1, 3, 2]]
  )
  scores = gate_scores.best_cluster_scores(
    _exported('logits', [logits]),
    _examples(np.array([0, 0, 1, 0, 0])),
    exportable.linear_model(),
  )
  np.testing.assert_array_equal(scores, [np.nan, np.nan, np.nan, 1, 0])


def test_a_place_that_is_not_finite_makes_the_example_so():
  model = dataclasses.replace(exportable.linear_model(), label_shape=(2,))
  logits = np.array([[[1, 0, 0], [np.nan] * 3], [[1, 0, 0], [1, 0, 0]]])
  scores = gate_scores.best_cluster_scores(
    _exported('logits', [logits]),
    _examples(np.array([[0, 0], [0, 1]])),
    model,
  )
  np.testing.assert_array_equal(scores, [np.nan, 0.5])


def test_an_example_of_padding_alone_is_no_unit():
  model = dataclasses.replace(
    exportable.linear_model(), label_shape=(2,), padding_label=2
  )
  scores = gate_scores.best_cluster_scores(
    _exported('logits', [np.tile([0.0, 1.0, 0.0], (3, 2, 1))]),
    _examples(np.array([[1, 0], [2, 2], [1, 2]])),
    model,
  )
  np.testing.assert_array_equal(scores, [0.5, 1])


@pytest.mark.parametrize('order', list(itertools.permutations(range(3))))
@pytest.mark.parametrize(
  'task', [model_lib.CLASSIFICATION, model_lib.REGRESSION]
)
def test_the_best_cluster_is_finite_in_any_order(task, order):
  if task == model_lib.CLASSIFICATION:
    name, outputs = 'logits', np.zeros([3, 2, 3])
    outputs[0, :, 1] = outputs[1, 0, 1] = 1
  else:
    name = 'prediction'
    outputs = np.array([[1, 1], [1, 3], [1, 1]], np.float32)
  outputs[2, 0] = np.nan
  scores = gate_scores.best_cluster_scores(
    _exported(name, outputs[[*order]]),
    _examples(np.array([1, 1])),
    exportable.linear_model(task),
  )
  expected = 1 if task == model_lib.CLASSIFICATION else 0
  np.testing.assert_array_equal(scores, [expected] * 2)


def test_scores_of_a_regression_are_squared_errors(tmp_path):
  scoring.write_regression_workdir(tmp_path)
  model = exportable.linear_model(model_lib.REGRESSION)
  clusters = exportable.states(model)[0].cluster_weights
  with dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as dataset:
    (bundle,) = bundles.find(
      tmp_path / 'export',
      gate_scores.model_choice.ScoringConfig(personalized=False),
      {},
      dataset.schema,
      dataset.feature_spec,
    )
    exported = gate_scores.load([bundle])
    examples = dataset.held_out(1)
    scores = gate_scores.best_cluster_scores(exported, examples, model)
    found = gate_scores.score_clients(exported, exported, dataset, model)
  errors_ = [
    (exportable.oracle_logits(clusters, i, examples.x)[:, 0] - examples.y) ** 2
    for i in range(2)
  ]
  np.testing.assert_allclose(scores, min(errors_, key=np.mean), rtol=1e-4)
  assert {one.group for one in found} == {'participating', 'unseen'}
  assert not any(one.is_known for one in found)
