"""The evaluation contract against a NumPy evaluation of a real dataset."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset, options
from tests.testing import raw_data
from tff_algos.algorithms import fed_soft
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.metrics import recovery
from tff_algos.models import registry as models
from tff_algos.runtimes import (
  client_sources,
  evaluator,
  loop,
  vectorized_runtime,
)

_NUM_CLUSTERS = 3


def _regression_config():
  return config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {
        'name': 'linear_regression',
        'options': {
          'num_sources': 2,
          'num_features': 3,
          'num_examples_per_source': 300,
          'num_held_out_per_source': 70,
        },
      },
      'distributions': {'kind': 'native'},
      'partition': {
        'law': '30:70',
        'num_clients': 12,
        'num_unseen_clients': 3,
      },
      'sizes': {'law': 'uniform', 'minimum': 0, 'maximum': 12},
      'splits': {'validation_ratio': 0.2, 'test_ratio': 0.5},
      'seed': 1,
    },
  )


class _Case:
  """A dataset, a model with random weights, and its evaluator."""

  def __init__(self, folder, config, model_name):
    build_dataset.build(config, folder)
    self.dataset = dataset_lib.FederatedDataset.open(folder)
    described = self.dataset.schema
    model = models.build_model(
      {'name': model_name},
      task=described.task,
      input_shape=tuple(described.x_shape),
      num_outputs=described.num_classes or 1,
    )
    self.is_classification = described.task == 'classification'
    self.algorithm = algorithms.build_algorithm(
      {'name': 'fed_soft', 'num_clusters': _NUM_CLUSTERS}, model
    )
    self.num_clients = len(self.dataset.client_ids)
    source = client_sources.DatasetSource(self.dataset, schema.TRAIN)
    self.store = loop.build_store(
      self.algorithm, source.population, 0, folder / 'states', 'memory'
    )
    runtime = vectorized_runtime.VectorizedRuntime(
      self.algorithm, self.num_clients
    )
    self.evaluator = evaluator.Evaluator(
      self.algorithm, self.dataset, runtime, self.store
    )
    self._set_states(np.random.default_rng(5))

  def _set_states(self, generator):
    """Random models; every third client was never drawn."""
    self.cluster_models = self._random_weights(generator, _NUM_CLUSTERS)
    self.own_models = self._random_weights(generator, self.num_clients)
    self.importance = generator.uniform(
      0.1, 1, [self.num_clients, _NUM_CLUSTERS]
    ).astype(np.float32)
    self.was_drawn = np.arange(self.num_clients) % 3 > 0
    self.server_state = fed_soft.ServerState(
      self.cluster_models, self.importance
    )
    self.store.stage(
      np.arange(self.num_clients),
      fed_soft.ClientState(self.own_models, self.was_drawn.astype(np.int32)),
    )
    self.store.commit(1)

  def _random_weights(self, generator, count):
    return tf.nest.map_structure(
      lambda spec: generator.normal(size=[count, *spec.shape]).astype('f'),
      self.algorithm.cluster_model.weights_spec(),
    )

  def scores(self, weights, index, examples):
    """Returns the score and the loss of each example, float64 `[n]` each."""
    num_features = int(np.prod(examples.x.shape[1:]))
    x = examples.x.reshape(-1, num_features).astype(np.float64)
    outputs = x @ weights['kernel'][index] + weights['bias'][index]
    if not self.is_classification:
      errors = (outputs[:, 0] - examples.y) ** 2
      return errors, errors
    largest = outputs.max(axis=1, keepdims=True)
    exponentials = np.exp(outputs - largest)
    chances = exponentials / exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(examples.y))
    right = (outputs.argmax(axis=1) == examples.y).astype(np.float64)
    return right, -np.log(chances[rows, examples.y])

  def examples(self, client_ids, split):
    return [self.dataset.examples(one, split) for one in client_ids]


@pytest.fixture(scope='module', params=['classification', 'regression'])
def case(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp('dataset')
  made = (
    _Case(folder, raw_data.digits_config(), 'logistic_regression')
    if request.param == 'classification'
    else _Case(folder, _regression_config(), 'linear_regression')
  )
  with made.dataset:
    yield made


def _mean(values: np.ndarray) -> float:
  return values.mean() if len(values) else np.nan


def _summary(prefix, case, values_of_clients):
  """Returns the four metrics of one score: a list of `[n]` arrays."""
  kept = [values for values in values_of_clients if len(values)]
  means = np.sort([values.mean() for values in kept])
  worst_first = means if case.is_classification else means[::-1]
  return {
    prefix: np.concatenate(kept).mean(),
    f'{prefix}_plain_mean': means.mean(),
    f'{prefix}_worst_decile': worst_first[: max(1, len(means) // 10)].mean(),
    f'{prefix}_num_nan': 0,
  }


def _expected_participating(case, split, score):
  own, cluster = [], []
  best = case.importance.argmax(axis=1)
  examples = case.examples(case.dataset.client_ids, split)
  for i, some in enumerate(examples):
    cluster.append(case.scores(case.cluster_models, best[i], some)[0])
    personal = case.scores(case.own_models, i, some)[0]
    own.append(personal if case.was_drawn[i] else cluster[-1])
  prefix = f'participating/{split}'
  return {
    **_summary(f'{prefix}/personalized/{score}', case, own),
    **_summary(f'{prefix}/cluster/{score}', case, cluster),
  }


def _expected_held_out(case, score):
  expected, table = {}, []
  for m, name in enumerate(case.dataset.source_names):
    held_out = case.dataset.held_out(m)
    found = [
      [
        values.mean()
        for values in case.scores(case.cluster_models, s, held_out)
      ]
      for s in range(_NUM_CLUSTERS)
    ]
    for s, (value, loss) in enumerate(found):
      expected[f'held_out/{name}/cluster_{s}/{score}'] = value
      expected[f'held_out/{name}/cluster_{s}/loss'] = loss
    values = sorted(
      (value for value, _ in found), reverse=case.is_classification
    )
    table.append(values)
  table = np.array(table)
  expected[f'held_out/mean/best_cluster/{score}'] = table[:, 0].mean()
  expected[f'held_out/mean/other_clusters/{score}'] = table[:, 1:].mean()
  return expected


def _expected_unseen(case, score):
  ids = case.dataset.unseen_client_ids
  values, chosen, best_on_test = [], [], []
  for train, test in zip(
    *(case.examples(ids, split) for split in (schema.TRAIN, schema.TEST)),
    strict=True,
  ):
    losses = [
      [
        _mean(case.scores(case.cluster_models, s, some)[1])
        for s in range(_NUM_CLUSTERS)
      ]
      for some in (train, test)
    ]
    chosen.append(int(np.argmin(losses[0])))
    best_on_test.append(int(np.argmin(losses[1])))
    values.append(case.scores(case.cluster_models, chosen[-1], test)[0])
  return (
    _summary(f'unseen/test/cluster/{score}', case, values),
    chosen,
    best_on_test,
  )


def test_all_metrics_against_numpy(case):
  score = 'accuracy' if case.is_classification else 'mse'
  expected = _expected_held_out(case, score)
  for split in schema.SPLITS:
    expected.update(_expected_participating(case, split, score))
  expected.update(_expected_unseen(case, score)[0])
  mixture = case.dataset.true_mixture()
  found = recovery.recovery(case.importance.argmax(1), mixture.argmax(1))
  for name, value in found._asdict().items():
    expected[f'participating/membership/{name}'] = value
  expected['participating/membership/error'] = recovery.membership_error(
    case.importance, mixture
  )
  metrics = case.evaluator.evaluate(case.server_state).metrics
  assert metrics.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(metrics[name], value, rtol=2e-5, err_msg=name)


def test_one_row_a_client_with_its_own_numbers(case):
  score = 'accuracy' if case.is_classification else 'mse'
  rows = case.evaluator.evaluate(case.server_state).clients
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
      _mean(expected),
      rtol=2e-5,
    )
  ids = case.dataset.unseen_client_ids
  assert [row['client_id'] for row in unseen] == list(ids)
  _, chosen, _ = _expected_unseen(case, score)
  assert [row['cluster_id'] for row in unseen] == chosen


def test_unseen_client_chooses_by_training_loss_where_test_labels_would_not(
  case,
):
  """Random models until, on the test part, another cluster would be best."""
  generator = np.random.default_rng(17)
  for _ in range(200):
    case._set_states(generator)
    summary, chosen, best_on_test = _expected_unseen(case, 'score')
    if chosen != best_on_test:
      break
  assert chosen != best_on_test
  metrics, rows = case.evaluator.evaluate(case.server_state)
  unseen = [row for row in rows if row['group'] == 'unseen']
  assert [row['cluster_id'] for row in unseen] == chosen
  name = case.algorithm.cluster_model.score_name
  np.testing.assert_allclose(
    metrics[f'unseen/test/cluster/{name}'],
    summary['unseen/test/cluster/score'],
    rtol=2e-5,
  )


def test_evaluation_changes_no_state(case):
  before = case.store.load(np.arange(case.num_clients))
  first = case.evaluator.evaluate(case.server_state).metrics
  np.testing.assert_equal(
    first, case.evaluator.evaluate(case.server_state).metrics
  )
  np.testing.assert_equal(before, case.store.load(np.arange(case.num_clients)))


def test_best_round_is_chosen_on_validation(case):
  score = 'accuracy' if case.is_classification else 'mse'
  metric = f'participating/validation/personalized/{score}'
  assert case.evaluator.selection_metric == metric
  assert case.evaluator.higher_is_better == case.is_classification
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
  assert case.evaluator.majority_class() == pytest.approx(expected)


def test_empty_split_gives_nan_and_no_failure(tmp_path):
  config = raw_data.digits_config(
    splits={'validation_ratio': 0.0, 'test_ratio': 0.3},
    partition={'law': 'iid', 'num_clients': 3},
  )
  empty = _Case(tmp_path, config, 'logistic_regression')
  with empty.dataset:
    metrics = empty.evaluator.evaluate(empty.server_state).metrics
  assert np.isnan(metrics['participating/validation/personalized/accuracy'])
  assert metrics['participating/test/personalized/accuracy_num_nan'] == 0
  assert not [name for name in metrics if name.startswith('unseen')]
