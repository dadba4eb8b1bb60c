"""What the clients of other algorithms than FedSoft are scored by.

FedSoft's paper gives a client of IFCA or FedEM the cluster model of its largest
importance weight; FedEM's own prediction is a mixture. Both are in the output.
pFedMe and pFedKM have a third model, the uploaded one, if it is kept.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset, options
from tests.testing import toys
from tff_algos.algorithms import fed_em, ifca
from tff_algos.algorithms.pfedkm import pfedkm
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.numerics import statistics
from tff_algos.runtimes import client_sources, debug_runtime
from tff_algos.stages.client import moreau_envelope
from tff_algos.training import loop

_CLUSTERS = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]], np.float32)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('dataset')
  config = {
    'source': {
      'name': 'linear_regression',
      'options': {
        'num_sources': 2,
        'num_features': 3,
        'num_examples_per_source': 200,
        'num_held_out_per_source': 10,
      },
    },
    'distributions': {'kind': 'native'},
    'partition': {'law': '30:70', 'num_clients': 4},
    'splits': {'validation_ratio': 0.2, 'test_ratio': 0.5},
    'seed': 1,
  }
  build_dataset.build(
    config_lib.from_dict(options.DatasetConfig, config), folder
  )
  with dataset_lib.FederatedDataset.open(folder) as opened:
    yield opened


def _evaluate(dataset, algorithm, client_states, change=lambda judge: None):
  """Returns the evaluation of two known models and known client states."""
  source = client_sources.DatasetSource(dataset, schema.TRAIN)
  store = loop.build_store(algorithm, source.population, 0, '', 'memory')
  store.stage(np.arange(4), client_states)
  store.commit()
  server_state = loop.initial_server_state(algorithm, 4, 0)
  server_state = server_state._replace(
    cluster_models=tf.nest.map_structure(
      lambda leaf: _CLUSTERS.reshape(leaf.shape), server_state.cluster_models
    )
  )
  runtime = debug_runtime.DebugRuntime(algorithm, 4)
  judge = evaluator.Evaluator(algorithm, dataset, runtime, store)
  change(judge)
  return judge.evaluate(server_state)


def _mse(dataset, weights_of):
  """Returns the error over all test examples of clients' linear models."""
  squares = []
  for i, client_id in enumerate(dataset.client_ids):
    test = dataset.examples(client_id, schema.TEST)
    squares.append((test.x @ weights_of(i) - test.y) ** 2)
  return np.concatenate(squares).mean()


def test_fed_em_is_scored_by_its_mixture_and_by_its_largest_component(dataset):
  memberships = np.array([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
  algorithm = fed_em.build_fed_em(toys.linear(3), fed_em.FedEmConfig())
  states = fed_em.ClientState(memberships.astype(np.float32))
  metrics = _evaluate(dataset, algorithm, states).metrics
  mixture = _mse(dataset, lambda i: memberships[i] @ _CLUSTERS)
  largest = _mse(dataset, lambda i: _CLUSTERS[memberships[i].argmax()])
  assert abs(mixture - largest) > 0.1
  np.testing.assert_allclose(
    metrics['participating/test/personalized/mse'], mixture, rtol=1e-5
  )
  np.testing.assert_allclose(
    metrics['participating/test/cluster/mse'], largest, rtol=1e-5
  )
  assert metrics['participating/membership/num_undecided'] == 0


def test_ifca_is_scored_by_its_choice_and_undecided_clients_are_counted(
  dataset,
):
  memberships = np.array([[0, 1], [1, 0], [0, 0], [0, 1]])
  algorithm = ifca.build_ifca(toys.linear(3), ifca.IfcaConfig())
  states = ifca.ClientState(memberships.astype(np.float32))
  metrics = _evaluate(dataset, algorithm, states).metrics
  chosen = _mse(dataset, lambda i: _CLUSTERS[memberships[i].argmax()])
  for kind in ('personalized', 'cluster'):
    np.testing.assert_allclose(
      metrics[f'participating/test/{kind}/mse'], chosen, rtol=1e-5
    )
  # Client 2 never chose; cluster 0 serves it.
  assert metrics['participating/membership/num_undecided'] == 1


@pytest.mark.parametrize('kept', moreau_envelope.KEPT)
def test_pfedkm_is_scored_by_theta_and_if_it_is_kept_by_the_upload(
  dataset, kept
):
  """Client 2 never took part; its cluster's model, 2 % 2, serves it."""
  config = pfedkm.PFedKMConfig(
    local_training=moreau_envelope.MoreauEnvelopeConfig(kept=kept)
  )
  own, uploaded = np.random.default_rng(7).normal(size=(2, 4, 3)).astype('f')
  has_both = kept == 'both'
  found = _evaluate(
    dataset,
    pfedkm.build_pfedkm(toys.linear(3), config),
    moreau_envelope.ClientState(
      {'kernel': own[..., np.newaxis]},
      np.array([1, 3, 0, 1], np.int32),
      {'kernel': uploaded[..., np.newaxis]} if has_both else (),
    ),
  )
  own[2] = uploaded[2] = _CLUSTERS[0]
  expected = {
    'personalized': own,
    'local': uploaded,
    'cluster': _CLUSTERS[[0, 1, 0, 1]],
  }
  for kind, weights in expected.items():
    name = f'participating/test/{kind}/mse'
    assert (name in found.metrics) == (kind != 'local' or has_both)
    if name in found.metrics:
      mse = _mse(dataset, lambda i: weights[i])  # noqa: B023
      np.testing.assert_allclose(found.metrics[name], mse, rtol=1e-5)
      row = [*found.clients][1][f'test_{kind}_mse']
      test = dataset.examples(dataset.client_ids[1], schema.TEST)
      np.testing.assert_allclose(
        row, np.mean((test.x @ weights[1] - test.y) ** 2), rtol=1e-5
      )


def test_a_client_without_scored_labels_has_no_broken_model(
  dataset, monkeypatch
):
  """Words that are not scored have losses: the local model's, too."""

  def unscore_client_0(judge):
    run = judge._run

    def without_scores(phase, *args):
      found = run(phase, *args)
      for name in {'score', 'local_score'} & found.keys():
        total, weight = (np.copy(leaf) for leaf in found[name])
        total[0] = weight[0] = 0
        found = {**found, name: statistics.MeanStat(total, weight)}
      return found

    sequences = dataclasses.replace(judge._model, label_shape=(1,))
    monkeypatch.setattr(judge, '_model', sequences)
    monkeypatch.setattr(judge, '_run', without_scores)

  rows = np.ones((4, 3, 1), np.float32)
  config = pfedkm.PFedKMConfig(
    local_training=moreau_envelope.MoreauEnvelopeConfig(kept='both')
  )
  found = _evaluate(
    dataset,
    pfedkm.build_pfedkm(toys.linear(3), config),
    moreau_envelope.ClientState(
      {'kernel': rows}, np.ones(4, np.int32), {'kernel': rows}
    ),
    unscore_client_0,
  )
  for kind in ('personalized', 'cluster', 'local'):
    name = f'participating/test/{kind}/mse'
    assert found.metrics[f'{name}_num_nan'] == 0
    assert np.isfinite(found.metrics[name])
