"""A dataset with an evaluator of it, and evaluations of it in NumPy."""

import numpy as np
import tensorflow as tf

from pipelines import build_dataset, options
from tests.testing import exportable, raw_data, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.runtimes import client_sources
from tff_algos.training import loop

NUM_CLUSTERS = 3


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


class Case:
  """A dataset, a model with random weights, and its evaluator."""

  def __init__(
    self, folder, config, model_name, build_runtime=toys.graph_runtime
  ):
    build_dataset.build(config, folder)
    self.dataset = dataset_lib.FederatedDataset.open(folder)
    described = self.dataset.schema
    model = toys.build(
      {'name': model_name},
      tuple(described.x_shape),
      described.num_classes or 1,
      described.task,
    )
    self.is_classification = described.task == 'classification'
    self.algorithm = algorithms.build_algorithm(
      algorithms.parse_config(
        {'name': 'fed_soft', 'num_clusters': NUM_CLUSTERS}
      ),
      model,
    )
    self.num_clients = len(self.dataset.client_ids)
    source = client_sources.DatasetSource(self.dataset, schema.TRAIN)
    self.store = loop.build_store(
      self.algorithm, source.population, 0, folder / 'states', 'memory'
    )
    runtime = build_runtime(self.algorithm, self.num_clients)
    self.evaluator = evaluator.Evaluator(
      self.algorithm, self.dataset, runtime, self.store
    )
    self.set_states(np.random.default_rng(5))

  def set_states(self, generator):
    """Random models; every third client was never drawn."""
    self.cluster_models = self._random_weights(generator, NUM_CLUSTERS)
    self.own_models = self._random_weights(generator, self.num_clients)
    self.importance = generator.uniform(
      0.1, 1, [self.num_clients, NUM_CLUSTERS]
    ).astype(np.float32)
    self.was_drawn = np.arange(self.num_clients) % 3 > 0
    self.server_state = fed_soft.ServerState(
      self.cluster_models, self.importance
    )
    self.store.stage(
      np.arange(self.num_clients),
      fed_soft.ClientState(self.own_models, self.was_drawn.astype(np.int32)),
    )
    self.store.commit()

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
    chances = exportable.softmax(outputs)
    rows = np.arange(len(examples.y))
    right = (outputs.argmax(axis=1) == examples.y).astype(np.float64)
    return right, -np.log(chances[rows, examples.y])

  def examples(self, client_ids, split):
    return [self.dataset.examples(one, split) for one in client_ids]


def build(task, folder):
  """Returns a case of digits or of the regression, by its task."""
  if task == 'classification':
    return Case(folder, raw_data.digits_config(), 'logistic_regression')
  return Case(folder, _regression_config(), 'linear_regression')


def mean(values: np.ndarray) -> float:
  return values.mean() if len(values) else np.nan


def summary(prefix, case, values_of_clients):
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


def expected_unseen(case, score):
  ids = case.dataset.unseen_client_ids
  values, chosen, best_on_test = [], [], []
  for train, test in zip(
    *(case.examples(ids, split) for split in (schema.TRAIN, schema.TEST)),
    strict=True,
  ):
    losses = [
      [
        mean(case.scores(case.cluster_models, s, some)[1])
        for s in range(NUM_CLUSTERS)
      ]
      for some in (train, test)
    ]
    chosen.append(int(np.argmin(losses[0])))
    best_on_test.append(int(np.argmin(losses[1])))
    values.append(case.scores(case.cluster_models, chosen[-1], test)[0])
  return (
    summary(f'unseen/test/cluster/{score}', case, values),
    chosen,
    best_on_test,
  )
