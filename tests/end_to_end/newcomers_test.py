"""Clients that were not trained on, evaluated with memberships that they fit."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import evaluated, toys
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.numerics import trees


@pytest.fixture(
  scope='module',
  params=[
    'classification',
    pytest.param('regression', marks=pytest.mark.verify),
  ],
)
def case(request, tmp_path_factory):
  made = evaluated.build(request.param, tmp_path_factory.mktemp('dataset'))
  with made.dataset:
    yield made


def _newcomers():
  """Who mixes the models by their mean kernels and by how much it has."""

  def fit(server_state, data, seed):
    del seed
    kernels = server_state.cluster_models['kernel']
    pull = tf.reduce_sum(data.mask) + tf.range(3.0)
    return tf.nn.softmax(0.1 * pull * tf.reduce_mean(kernels, axis=[1, 2]))

  return algorithm_lib.Newcomers(
    fit,
    lambda server_state, membership: trees.mix(
      membership, server_state.cluster_models
    ),
  )


def test_newcomers_are_scored_with_what_they_fit_to_training_examples(case):
  algorithm = dataclasses.replace(case.algorithm, newcomers=_newcomers())
  found = evaluator.Evaluator(
    algorithm,
    case.dataset,
    toys.graph_runtime(algorithm, case.num_clients),
    case.store,
  ).evaluate(case.server_state)
  score = algorithm.cluster_model.score_name
  ids = case.dataset.unseen_client_ids
  means = case.cluster_models['kernel'].mean(axis=(1, 2))
  rows = [row for row in found.clients if row['group'] == 'unseen']
  values, in_cluster = [], []
  for row, train, test in zip(
    rows,
    *(case.examples(ids, split) for split in (schema.TRAIN, schema.TEST)),
    strict=True,
  ):
    shares = np.exp(0.1 * (len(train.y) + np.arange(3.0)) * means)
    shares /= shares.sum()
    np.testing.assert_allclose(
      [row[f'membership_{s}'] for s in range(3)], shares, rtol=1e-4
    )
    assert row['cluster_id'] == shares.argmax()
    own = case.scores(case.cluster_models, shares.argmax(), test)[0]
    in_cluster.append(own)
    np.testing.assert_allclose(
      row[f'test_cluster_{score}'], evaluated.mean(own), rtol=1e-4
    )
    mixed = {
      name: np.tensordot(shares, leaf, axes=1)[np.newaxis]
      for name, leaf in case.cluster_models.items()
    }
    values.append(case.scores(mixed, 0, test)[0])
    np.testing.assert_allclose(
      row[f'test_personalized_{score}'], evaluated.mean(values[-1]), rtol=1e-4
    )
  for kind, scores in (('personalized', values), ('cluster', in_cluster)):
    expected = evaluated.summary(f'unseen/test/{kind}/{score}', case, scores)
    for name, value in expected.items():
      np.testing.assert_allclose(found.metrics[name], value, rtol=1e-4)
  # The models of lowest loss are others: this test tells the rules apart.
  _, by_loss, _ = evaluated.expected_unseen(case, score)
  assert by_loss != [row['cluster_id'] for row in rows]
