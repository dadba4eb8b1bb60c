"""The states from which a round is run once more."""

import types

import pytest

from tests.testing import factored
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.experiments import starts
from tff_algos.training import loop


def _session(saved):
  def restore(round_num=None):
    if not saved:
      raise errors.CheckpointError('there is none')
    return round_num, f'state {round_num}'

  return types.SimpleNamespace(
    algorithm=registry.build_algorithm(
      registry.parse_config(factored.host()), factored.model()
    ),
    checkpoints=types.SimpleNamespace(rounds=lambda: saved),
    dataset=types.SimpleNamespace(client_ids=range(5)),
    config=types.SimpleNamespace(seed=0),
    restore=restore,
  )


def test_the_initial_state_comes_before_the_checkpoints():
  opened = _session((3, 4))
  (first, state), *others = starts.starts(opened)
  expected = loop.initial_server_state(opened.algorithm, 5, 0)
  assert first == 0
  assert (
    state.model_weights['conv/atoms'] == expected.model_weights['conv/atoms']
  ).all()
  assert others == [(3, 'state 3'), (4, 'state 4')]


def test_without_a_checkpoint_nothing_was_trained():
  with pytest.raises(errors.CheckpointError, match='there is none'):
    list(starts.starts(_session(())))
