"""CMFL when attackers are on the committee: its rounds against NumPy.

Che, Li, Chen, He and Zheng (arXiv 2108.00365): malicious clients attack when they
train and when they score (section 6.6), and the election takes the middle of the
ranking (section 4.2), which a committee of attackers turns around and does not
move.
"""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.algorithms.cmfl.audit import audit_log

_THETA = np.array([[3.0, -2.0]])
_NUM_CLIENTS = 100
_SIZES = [20] * _NUM_CLIENTS
_SOURCE = toys.linear_clients(_THETA, np.ones([_NUM_CLIENTS, 1]), _SIZES)
_RATE = 0.1


def _build(is_attacker, space):
  """Returns 20 active clients: a committee of 8, and 8 of 12 are averaged."""
  section = {
    'name': 'cmfl',
    'upload': 'model',
    'audit': audit_log.DIGESTS,
    'committee': {
      'active_rate': 0.2,
      'committee_rate': 0.4,
      'aggregation_rate': 0.4,
      'aggregation_base': 'active',
    },
    'local_training': {
      'num_local_epochs': 1,
      'batch_size': 20,
      'optimizer': {'name': 'sgd', 'learning_rate': _RATE},
    },
  }
  config = attacks.AttackConfig('sign_flip', fraction=0.1, space=space)
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.linear(2)
  )
  return attacks.attack(algorithm, config, is_attacker)


def _start(algorithm, members):
  """Returns states of round 0 with that committee, near the planted model."""
  state, states = toys.initial_states(algorithm, _SOURCE.population)
  weights = {'kernel': (_THETA.T + 0.5).astype(np.float32)}
  agreed = state.agreed._replace(
    model_weights=type(state.agreed.model_weights)(weights),
    is_member=np.isin(np.arange(_NUM_CLIENTS), members),
  )
  return state._replace(agreed=agreed), states


def _kernel(state):
  return np.ravel(state.agreed.model_weights['kernel']).astype(np.float64)


def _honest_models(w):
  """Returns every client's model after a step on all its examples."""
  models = []
  for k in range(_NUM_CLIENTS):
    x = _SOURCE.examples(k).x.astype(np.float64)
    gradient = 2 * x.T @ (x @ w - _SOURCE.examples(k).y) / len(x)
    models.append(w - _RATE * gradient)
  return np.array(models)


def _distances(models, members):
  pairs = models[:, np.newaxis] - models[members]
  return (pairs**2).sum(axis=-1).mean(axis=1)


def _play(runtime, algorithm, states, round_num):
  """Returns the states after a round, and what its members saw."""
  *states, outputs = toys.run_rounds(
    algorithm, _SOURCE, 1, start=states, first_round=round_num, runtime=runtime
  )
  return states, outputs[0].server_metrics['record']


def _training(algorithm, state):
  """Returns the training clients of round 1."""
  call = next(algorithm.plan_round(state, _SOURCE.population, 1, seed=0))
  roles = call.client_inputs.client_input
  return call.client_indices[~roles.is_member]


@pytest.mark.verify
def test_a_committee_of_attackers_poisons_its_round_and_elects_honest_clients():
  """10 of 100 clients send -1 times their models; 8 of them are the committee.

  The other two are trained in that round. They are nearest to the committee, so
  two of the eight models that are averaged point away; but the two first of 12
  places lie before the window of election. From then on honest members rank
  attackers last, so none is averaged, at most one is elected and the model heals.
  """
  members = np.arange(8)
  is_attacker = np.isin(np.arange(_NUM_CLIENTS), members)
  algorithm = _build(is_attacker, 'model')
  states = _start(algorithm, members)
  # Who is trained depends on the committee and the seed, not on who attacks.
  drawn = _training(algorithm, states[0])
  is_attacker[drawn[:2]] = True
  algorithm = _build(is_attacker, 'model')

  before = _kernel(states[0])
  sent = _honest_models(before)
  sent[is_attacker] *= -1
  ranking = drawn[np.argsort(_distances(sent, members)[drawn])]
  assert set(ranking[:2]) == set(drawn[:2])
  poisoned = sent[ranking[:8]].mean(axis=0)
  away = np.linalg.norm(poisoned - _THETA[0])
  assert away > 2 * np.linalg.norm(before - _THETA[0])
  with toys.graph_runtime(algorithm, _NUM_CLIENTS) as runtime:
    states, _ = _play(runtime, algorithm, states, 1)
    np.testing.assert_allclose(_kernel(states[0]), poisoned, rtol=1e-5)
    elected = np.flatnonzero(states[0].agreed.is_member)
    np.testing.assert_array_equal(elected, np.sort(ranking[2:10]))
    assert not is_attacker[elected].any()
    for round_num in range(2, 9):
      states, _ = _play(runtime, algorithm, states, round_num)
      # Of three attackers among the 12 who trained, the first lies in the window.
      assert is_attacker[states[0].agreed.is_member].sum() <= 1
      assert not is_attacker[states[0].agreed.is_selected].any()
  assert np.linalg.norm(_kernel(states[0]) - _THETA[0]) < away / 4


@pytest.mark.parametrize(
  'space',
  [
    pytest.param(space, marks=[pytest.mark.verify] * (space == 'model'))
    for space in attacks.SPACES
  ],
)
def test_an_attacker_on_the_committee_scores_with_its_false_upload(space):
  """One member of 8 attacks; all distances are those to what it sent.

  In the space of models that is -1 times its model, in the space of updates the
  model that its update with the opposite sign leads to.
  """
  members, attacker = np.arange(30, 38), 33
  algorithm = _build(np.arange(_NUM_CLIENTS) == attacker, space)
  states = _start(algorithm, members)
  before = _kernel(states[0])
  with toys.graph_runtime(algorithm, _NUM_CLIENTS) as runtime:
    _, record = _play(runtime, algorithm, states, 1)
  models = _honest_models(before)
  honest = _distances(models, members)
  false = -models[attacker]
  if space == 'update':
    false = 2 * before - models[attacker]
  models[attacker] = false
  expected = _distances(models, members)
  order = np.argsort(record['client_index'])
  clients = record['client_index'][order]
  assert np.isin(members, clients).all()
  np.testing.assert_allclose(
    record['distances'][order], expected[clients], rtol=1e-4
  )
  # The yardstick is another one than it would be.
  assert (expected[clients] > 1.1 * honest[clients]).all()
