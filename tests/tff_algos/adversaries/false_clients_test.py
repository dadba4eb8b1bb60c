"""Tests of clients that falsify their own update, by hand on a tiny algorithm.

Clients 0 to 2 have the sums 3, 10 and 7 and the server 5, from which they start:
they say 8, 15 and 12, and weigh 2, 1 and 1. Client 1 attacks. Client 3 has no
examples: nobody averages the 5 that it says, and no norm counts its update of 0.
"""

import dataclasses
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.adversaries import attacks, false_clients
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.rounds import plans
from tff_algos.runtimes import debug_runtime

_CLIENTS = running_sum.source([1, 2], [10], [7], [])
_IS_ATTACKER = np.array([False, True, False, False])


def _algorithm(name, uploads=('mean',), **options):
  plain = running_sum.algorithm(
    uploads={field: lambda message, *_: message for field in uploads}
  )
  config = attacks.AttackConfig(name, fraction=0.4, **options)
  return attacks.attack(plain, config, _IS_ATTACKER)


def _run(algorithm):
  """Runs one round from a total of 5; returns its output."""
  server_state, states = toys.initial_states(algorithm, _CLIENTS.population)
  server_state = server_state._replace(total=np.float32(5))
  output = toys.run_rounds(algorithm, _CLIENTS, 1, start=(server_state, states))
  return output[2][0]


def _mean(sent):
  return (2 * 8 + sent + 12) / 4


@pytest.mark.parametrize(
  ('name', 'space', 'sent'),
  [
    ('zero', 'update', 5),
    ('zero', 'model', 0),
    ('sign_flip', 'update', -5),
    ('sign_flip', 'model', -15),
  ],
)
def test_an_upload_is_falsified_as_update_or_as_model(name, space, sent):
  output = _run(_algorithm(name, space=space))
  assert float(output.server_state.mean) == _mean(sent)
  # What is no upload stays true, and so does what the client keeps.
  np.testing.assert_array_equal(output.server_state.said, [8, 15, 12, 5])
  states = toys.states_of(output, np.arange(3))
  np.testing.assert_array_equal(states.last[:, 0], [8, 15, 12])
  np.testing.assert_array_equal(states.last[:, 1], [1, 1, 1])
  values = {
    name: float(stat.total / stat.weight)
    for name, stat in output.client_metrics.items()
  }
  assert values['attack/share'] == 1 / 4
  assert values['attack/honest_norm'] == (3 + 7) / 2
  assert values['attack/false_norm'] == abs(sent - 5)


def test_norms_are_of_clients_that_are_drawn():
  """As in pFedMe, where all train: of the honest ones client 0 alone."""
  plain = running_sum.contributing({'mean': lambda message, *_: message})
  config = attacks.AttackConfig('sign_flip', fraction=0.4)
  algorithm = attacks.attack(plain, config, _IS_ATTACKER)
  call = dataclasses.replace(
    running_sum.phase_call(range(4), ()),
    client_inputs=false_clients.MarkedInput(
      _IS_ATTACKER, plans.Contribution(np.array([1, 0, 0, 1], np.float32))
    ),
  )
  output = running_sum.run_call(
    *(debug_runtime.DebugRuntime(algorithm, 4), algorithm, _CLIENTS, call)
  )
  metrics = output.client_metrics
  np.testing.assert_array_equal(metrics['attack/honest_norm'], (3, 1))
  np.testing.assert_array_equal(metrics['attack/false_norm'], (0, 0))


def test_random_attacks_are_those_of_the_clients_seed():
  """Scaling leaves from half to all of the update 10; noise is added to it."""
  for options in ({'minimum_scale': 0.5}, {'minimum_scale': 0.9}):
    output = _run(_algorithm('scaling', **options))
    sent = 4 * float(output.server_state.mean) - 2 * 8 - 12
    assert 5 + 10 * options['minimum_scale'] <= sent < 15
  one, same = (
    float(_run(_algorithm('gaussian_noise')).server_state.mean)
    for _ in range(2)
  )
  assert one == same != _mean(15)
  far = _run(_algorithm('gaussian_noise', noise_deviation=1e6))
  assert abs(float(far.server_state.mean)) > 1e3


@pytest.mark.parametrize('name', ['scaling', 'gaussian_noise'])
def test_each_entry_of_each_field_has_a_number_of_its_own(name):
  """The honest update is 10 in `mean`, and 10 and -4 in `last`."""
  output = _run(_algorithm(name, ('mean', 'last')))
  mean = 4 * float(output.server_state.mean) - 2 * 8 - 12
  first, second = toys.states_of(output, np.arange(3)).last[1]
  changed = {
    'scaling': [(mean - 5) / 10, (first - 5) / 10, (second - 5) / -4],
    'gaussian_noise': [mean - 15, first - 15, second - 1],
  }[name]
  assert min(np.diff(np.sort(changed))) > 1e-3


def test_an_upload_that_stays_with_the_client_is_falsified_there():
  """For phases that use what an earlier one computed; here all of `last`."""
  output = _run(_algorithm('sign_flip', uploads=('last',)))
  states = toys.states_of(output, np.arange(3))
  np.testing.assert_array_equal(states.last[1], [5 - 10, 5 + 4])
  np.testing.assert_array_equal(states.last[0], [8, 1])
  assert float(output.server_state.mean) == _mean(15)


def test_the_plan_marks_who_attacks():
  """In the order of the call, beside the plan's own inputs."""

  def plan_round(*_):
    yield running_sum.phase_call([2, 1], [4, 4])

  plain = running_sum.algorithm(uploads={'mean': lambda message, *_: message})
  algorithm = attacks.attack(
    dataclasses.replace(plain, plan_round=plan_round),
    attacks.AttackConfig('sign_flip', fraction=0.4),
    _IS_ATTACKER,
  )
  plan = algorithm.plan_round(None, _CLIENTS.population, 4, 0)
  marked, own = next(plan).client_inputs
  np.testing.assert_array_equal(marked, [False, True])
  np.testing.assert_array_equal(own, [4, 4])
  with pytest.raises(StopIteration):
    plan.send(None)


def test_labels_are_flipped_in_every_phase_also_without_an_upload():
  def say_labels(message, client_input, client_state, data, seed):
    del message, client_input, seed
    return algorithm_lib.ClientOutput(
      OrderedDict(value=data.y), client_state, OrderedDict()
    )

  plain = running_sum.algorithm(client_work=say_labels)
  upload = plain.phases[running_sum.PHASE]._replace(
    uploads={'value': lambda *_: 0}
  )
  plain = dataclasses.replace(
    plain,
    cluster_model=toys.mlp(),
    phases={**plain.phases, 'upload': upload._replace(name='upload')},
  )
  config = attacks.AttackConfig('label_flip', fraction=0.4)
  phase = attacks.attack(plain, config, _IS_ATTACKER).phases[running_sum.PHASE]
  y = tf.range(plain.cluster_model.num_outputs)
  data = algorithm_lib.ClientData(y, y, tf.ones(y.shape))
  for is_attacker, labels in ((True, y[::-1]), (False, y)):
    marked = false_clients.MarkedInput(tf.constant(is_attacker), 0.0)
    output = phase.client_work(0.0, marked, (), data, tf.constant([0, 1]))
    np.testing.assert_array_equal(output.result['value'], labels)
