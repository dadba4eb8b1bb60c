"""Tests of attackers that see the cohort, by hand on a tiny algorithm.

Clients 0 to 3 have the sums 2, 4, 9 and 1 and the server 5, from which they start;
client 4 sends NaN. Clients 1 and 3 attack, so honest updates are 2 and 9.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import running_sum, toys
from tff_algos.adversaries import attacks
from tff_algos.core import errors
from tff_algos.rounds import aggregation, plans
from tff_algos.runtimes import debug_runtime

_CLIENTS = running_sum.source([2], [4], [4, 5], [1], [np.nan])
_IS_ATTACKER = np.array([False, True, False, True, False])
_MEAN, _DEVIATION = 5.5, 3.5


def _run(
  name,
  is_attacker=_IS_ATTACKER,
  indices=(4, 3, 2, 1, 0),
  clients=_CLIENTS,
  **options,
):
  plain = running_sum.algorithm(uploads={'mean': lambda message, *_: message})
  config = attacks.AttackConfig(name, fraction=0.4, **options)
  algorithm = attacks.attack(plain, config, is_attacker)
  return running_sum.run_call(
    debug_runtime.DebugRuntime(algorithm, len(is_attacker)),
    algorithm,
    clients,
    running_sum.phase_call(indices, np.zeros(len(indices))),
    5.0,
  )


@pytest.mark.parametrize(
  ('name', 'options', 'update'),
  [
    ('alie', {'num_deviations': 2.0}, _MEAN - 2 * _DEVIATION),
    # Of four, two are honest and one more makes a majority: half is hidden.
    ('alie', {}, _MEAN),
    ('ipm', {'ipm_factor': 3.0}, -3 * _MEAN),
    # As far from 9 as 2 is.
    ('min_max', {'perturbation': 'unit'}, 2),
    # |v - 2|^2 + |v - 9|^2 = 49.
    ('min_sum', {'perturbation': 'sign'}, 2),
    # Both honest updates are as far from their mean.
    ('committee_aware', {'perturbation': 'unit'}, 2),
  ],
)
def test_attackers_send_the_same_false_update(name, options, update):
  output = _run(name, **options)
  # Client 2 has two examples, and so two shares.
  expected = 5 + (2 + 2 * 9 + 2 * update) / 5
  np.testing.assert_allclose(output.server_state.mean, expected, rtol=1e-5)
  metrics = output.server_metrics
  assert float(metrics['attack/share']) == pytest.approx(2 / 5)
  assert float(metrics['attack/honest_norm']) == pytest.approx(_MEAN)
  assert float(metrics['attack/false_norm']) == pytest.approx(abs(update))
  assert float(metrics['weight']) == 5
  assert output.num_invalid == 1


def test_clients_of_weight_zero_are_neither_honest_nor_attackers():
  """Clients without examples, whose updates of 0 nobody averages."""
  clients = running_sum.source([2], [4], [4, 5], [1], [np.nan], [], [])
  is_attacker = np.append(_IS_ATTACKER, [False, True])
  plain, more = (
    _run('alie', is_attacker, range(num), clients, num_deviations=2.0)
    for num in (5, 7)
  )
  assert float(more.server_state.mean) == float(plain.server_state.mean)
  for name in ('attack/share', 'attack/honest_norm', 'attack/false_norm'):
    assert float(more.server_metrics[name]) == float(plain.server_metrics[name])


def test_who_trains_without_being_drawn_is_neither():
  """As in pFedMe; whatever becomes of the uploads, they are collected."""
  plain = running_sum.contributing({'said': lambda message, *_: message})
  config = attacks.AttackConfig('ipm', fraction=0.4)
  algorithm = attacks.attack(plain, config, _IS_ATTACKER)
  call = dataclasses.replace(
    running_sum.phase_call(range(5), ()),
    client_inputs=plans.Contribution(np.array([1, 1, 0, 0, 1], np.float32)),
  )
  output = running_sum.run_call(
    *(debug_runtime.DebugRuntime(algorithm, 5), algorithm, _CLIENTS, call)
  )
  # Of the two that are drawn the honest one has the sum 2.
  np.testing.assert_allclose(output.server_state.said, [2, -0.5 * 2, 9, 1, 0])
  assert float(output.server_metrics['attack/share']) == pytest.approx(1 / 3)


def test_in_model_space_models_are_averaged_and_turned():
  output = _run('ipm', space='model', ipm_factor=1.0)
  expected = (7 + 2 * 14 - 2 * 10.5) / 5
  np.testing.assert_allclose(output.server_state.mean, expected, rtol=1e-5)


def test_clients_keep_what_is_true():
  states = toys.states_of(_run('ipm'), np.arange(4))
  np.testing.assert_array_equal(states.last[:, 0], [7, 9, 14, 6])


@pytest.mark.parametrize('name', ['ipm', 'min_max', 'committee_aware'])
def test_who_sees_nobody_honest_sends_the_truth(name):
  output = _run(name, indices=(1, 3))
  np.testing.assert_allclose(output.server_state.mean, 5 + (4 + 1) / 2)


@pytest.mark.parametrize('name', ['alie', 'ipm'])
def test_an_attacker_that_is_refused_counts_as_nothing(name):
  """Client 4, whose NaN is refused: neither by its number nor by its norm."""
  found, expected = (
    _run(name, is_attacker=np.array([False, True, False, True, attacks_too]))
    for attacks_too in (True, False)
  )
  for field, value in expected.server_state._asdict().items():
    np.testing.assert_array_equal(getattr(found.server_state, field), value)
  for metric in ('attack/honest_norm', 'attack/false_norm'):
    assert found.server_metrics[metric] == expected.server_metrics[metric]


def test_a_sum_alone_is_falsified_too():
  plain = running_sum.algorithm(
    aggregation={'value': aggregation.Sum()},
    server_update=lambda state, aggregates: (
      state._replace(total=aggregates['value']),
      {},
    ),
    uploads={'value': lambda message, *_: message},
  )
  algorithm = attacks.attack(
    plain, attacks.AttackConfig('ipm', fraction=0.4), _IS_ATTACKER
  )
  _, _, outputs = toys.run_rounds(algorithm, _CLIENTS, 1)
  np.testing.assert_allclose(
    outputs[0].server_state.total, 2 + 9 - 2 * 0.5 * _MEAN
  )


def test_a_cohort_without_attackers_is_as_ever():
  output = _run('min_max', is_attacker=np.zeros(5, bool))
  np.testing.assert_allclose(
    output.server_state.mean, 5 + (2 + 4 + 18 + 1) / 5, rtol=1e-6
  )
  assert float(output.server_metrics['attack/share']) == 0


def test_what_is_not_sent_cannot_be_seen():
  plain = running_sum.algorithm(uploads={'last': lambda message, *_: message})
  with pytest.raises(errors.ConfigError, match="does not send 'last'"):
    attacks.attack(
      plain, attacks.AttackConfig('alie', fraction=0.4), _IS_ATTACKER
    )


def test_attacks_come_before_whatever_the_server_makes_of_uploads():
  """A collected field is falsified as an averaged one is."""
  plain = running_sum.algorithm(uploads={'said': lambda message, *_: message})
  algorithm = attacks.attack(
    plain, attacks.AttackConfig('ipm', fraction=0.4), _IS_ATTACKER
  )
  _, _, outputs = toys.run_rounds(algorithm, _CLIENTS, 1)
  np.testing.assert_allclose(
    outputs[0].server_state.said, [2, -0.5 * 5.5, 9, -0.5 * 5.5, 0]
  )
