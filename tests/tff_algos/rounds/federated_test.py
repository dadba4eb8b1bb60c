"""Tests of the TFF form of a phase; runtimes' tests compare its results."""

import pytest

from tests.testing import toys
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import errors
from tff_algos.rounds import federated, phase_types

_CLIENTS = (
  '{<client_index=int32,client_input=%s,client_state=%s,data=<x=float32[?,3],'
  'y=float32[?],mask=float32[?]>,seed=int32[2]>}@CLIENTS'
)


@pytest.fixture(scope='module', name='types_of')
def _types_of():
  """Returns a function: algorithm, phase name -> its TFF type signature."""

  def types_of(algorithm, name):
    types = phase_types.check_algorithm(algorithm, num_clients=5)
    phase = algorithm.phases[name]
    built = federated.build_federated_phase(phase, types[name])
    signature = built.whole.type_signature
    parameter, result = signature.parameter, signature.result
    return (
      {key: str(parameter[key]) for key in ('server_state', 'clients')},
      {key: str(result[key]) for key in dir(result)},
    )

  return types_of


def test_fed_avg_is_one_federated_computation(types_of):
  built = fed_avg.build_fed_avg(toys.linear(3), fed_avg.FedAvgConfig())
  parameter, result = types_of(built, 'train')
  state = '<model_weights=<kernel=float32[3,1]>,optimizer_slots=<>>@SERVER'
  assert parameter == {
    'server_state': state,
    'clients': _CLIENTS % ('<>', '<>'),
  }
  assert result['server_state'] == state
  assert result['server_metrics'] == '<>@SERVER'
  assert result['clients'] == '{<client_index=int32,client_state=<>>}@CLIENTS'
  assert result['client_metrics'] == (
    '<metrics=<loss=<total=float32,weight=float32>>@SERVER,'
    'num_invalid=int32@SERVER>'
  )


def test_fed_softs_client_states_stay_at_the_clients(types_of):
  built = fed_soft.build_fed_soft(toys.linear(3), fed_soft.FedSoftConfig())
  parameter, result = types_of(built, 'train')
  state = '<personalized_weights=<kernel=float32[3,1]>,num_updates=int32>'
  client_input = '<importance_weights=float32[2],cluster_weights=float32[2]>'
  assert parameter['clients'] == _CLIENTS % (client_input, state)
  assert result['clients'] == (
    '{<client_index=int32,client_state=' + state + '>}@CLIENTS'
  )


def test_a_collecting_phase_keeps_the_type_of_the_server_state(types_of):
  built = fed_soft.build_fed_soft(toys.linear(3), fed_soft.FedSoftConfig())
  parameter, result = types_of(built, 'estimate_importance')
  assert (
    parameter['server_state']
    == result['server_state']
    == (
      '<cluster_models=<kernel=float32[2,3,1]>,'
      'importance_weights=float32[5,2]>@SERVER'
    )
  )
  assert parameter['clients'] == _CLIENTS % ('<>', '<>')


def test_every_phase_of_an_algorithm_is_built():
  built = fed_soft.build_fed_soft(toys.linear(3), fed_soft.FedSoftConfig())
  phases = federated.build_federated_phases(built, num_clients=4)
  assert set(phases) == set(built.phases)
  state = phases['train'].whole.type_signature.parameter['server_state']
  assert 'importance_weights=float32[4,2]' in str(state)
  with pytest.raises(errors.ConfigError, match='num_clients'):
    federated.build_federated_phases(built, num_clients=0)
