"""One runtime for several sessions: when it is kept, and that nothing changes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from configs.fed_soft import digits
from tff_algos.core import errors
from tff_algos.experiments import (
  evaluating,
  experiment,
  runtime_cache,
  session,
  training,
)
from tff_algos.runtimes import debug_runtime


def _config(runtime):
  values = digits.get_config('smoke')
  values.training.num_rounds = 1
  values.algorithm.local_training.num_local_epochs = 1
  values.runtime.name = runtime
  values.runtime.vectorized.clients_per_block = 1  # It is traced faster.
  return experiment.parse(values)


@pytest.fixture
def config():
  return _config('debug')  # It traces no graphs.


def _copy(digits_dataset, folder):
  folder.mkdir()
  (folder / 'dataset').symlink_to(digits_dataset / 'dataset')
  return folder


def _runtime_of(config, folder, kept):
  with session.open_session(config, folder, kept=kept) as opened:
    return opened.runtime


def test_a_runtime_is_kept_for_what_traces_the_same(config, digits_dataset):
  other_seed = dataclasses.replace(config, seed=7)
  longer = dataclasses.replace(
    config, training=dataclasses.replace(config.training, num_rounds=9)
  )
  algorithm = config.algorithm._replace(
    options=dataclasses.replace(config.algorithm.options, proximal_weight=3.0)
  )
  other_algorithm = dataclasses.replace(config, algorithm=algorithm)
  with runtime_cache.KeptRuntime() as kept:
    first = _runtime_of(config, digits_dataset, kept)
    assert _runtime_of(other_seed, digits_dataset, kept) is first
    assert _runtime_of(longer, digits_dataset, kept) is first
    assert _runtime_of(other_algorithm, digits_dataset, kept) is not first
  assert _runtime_of(config, digits_dataset, None) is not first


def test_attackers_that_a_seed_draws_get_their_own(config, digits_dataset):
  attack = dataclasses.replace(config.attack, name='zero', fraction=0.25)
  attacked = dataclasses.replace(config, attack=attack)
  other_seed = dataclasses.replace(attacked, seed=7)
  with runtime_cache.KeptRuntime() as kept:
    first = _runtime_of(attacked, digits_dataset, kept)
    assert _runtime_of(other_seed, digits_dataset, kept) is not first


@pytest.fixture(name='private_values')
def make_private_values():
  values = digits.get_config('smoke')
  values.runtime.name = 'debug'
  values.algorithm.selection = 'weighted_full'
  values.privacy.noise_multiplier = 1.0
  return values


def test_each_run_ends_by_its_own_privacy_budget(
  private_values, digits_dataset
):
  with runtime_cache.KeptRuntime() as kept:
    for target in (9.0, 7.0):
      private_values.privacy.target_epsilon = target
      config = experiment.parse(private_values)
      with session.open_session(config, digits_dataset, kept=kept) as opened:
        assert opened.algorithm.account.config.target_epsilon == target


def test_private_runs_that_continue_otherwise_get_their_own(
  private_values, digits_dataset
):
  """Their noise follows from a name in the algorithm."""
  config = experiment.parse(private_values)
  continuation = dataclasses.replace(config.continuation, optimizer='anew')
  other = dataclasses.replace(config, continuation=continuation)
  with runtime_cache.KeptRuntime() as kept:
    first = _runtime_of(config, digits_dataset, kept)
    assert _runtime_of(other, digits_dataset, kept) is not first


def test_a_session_that_fails_leaves_no_runtime(config, digits_dataset):
  with runtime_cache.KeptRuntime() as kept:
    first = _runtime_of(config, digits_dataset, kept)
    with pytest.raises(errors.CheckpointError):
      with session.open_session(config, digits_dataset, kept=kept) as opened:
        opened.restore()
    assert _runtime_of(config, digits_dataset, kept) is not first


def test_what_is_kept_is_left_once(config, digits_dataset, monkeypatch):
  left = []
  leave = debug_runtime.DebugRuntime.__exit__

  def count(runtime, *exc_info):
    left.append(runtime)
    leave(runtime, *exc_info)

  monkeypatch.setattr(debug_runtime.DebugRuntime, '__exit__', count)
  with runtime_cache.KeptRuntime() as kept:
    first = _runtime_of(config, digits_dataset, kept)
    assert not left
    algorithm = config.algorithm._replace(
      options=dataclasses.replace(config.algorithm.options, proximal_weight=3.0)
    )
    other = dataclasses.replace(config, algorithm=algorithm)
    second = _runtime_of(other, digits_dataset, kept)
    assert left == [first]
  assert left == [first, second]


@pytest.mark.verify
def test_runs_that_share_graphs_are_what_they_are_alone(
  digits_dataset, tmp_path
):
  """Seed 1 after seed 0, and seed 1 by itself, bit for bit."""
  config = _config('vectorized')
  other_seed = dataclasses.replace(config, seed=1)
  alone = _copy(digits_dataset, tmp_path / 'alone')
  with runtime_cache.KeptRuntime() as kept:
    training.train(other_seed, alone, kept=kept)
    evaluating.evaluate(other_seed, alone, kept=kept)
  together = [_copy(digits_dataset, tmp_path / name) for name in ('a', 'b')]
  with runtime_cache.KeptRuntime() as kept:
    for one, folder in zip((config, other_seed), together, strict=True):
      training.train(one, folder, kept=kept)
      evaluating.evaluate(one, folder, kept=kept)
  for file in ('evaluation/clients.csv', 'evaluation/centers.csv'):
    assert (alone / file).read_bytes() == (together[1] / file).read_bytes()
    assert (alone / file).read_bytes() != (together[0] / file).read_bytes()
  found = []
  for folder in (alone, together[1]):
    reader = dataclasses.replace(other_seed, runtime=_config('debug').runtime)
    with session.open_session(reader, folder) as opened:
      _, server_state = opened.restore()
      found.append([server_state, opened.store.load(np.arange(24))])
  tf.nest.map_structure(np.testing.assert_array_equal, *found)
