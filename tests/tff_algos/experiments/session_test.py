import dataclasses
import types

import numpy as np
import psutil
import pytest

from tff_algos.core import errors
from tff_algos.experiments import interactive, session, training
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import continuation, loop


@pytest.fixture(scope='module')
def opened(finished_run):
  with session.open_session(finished_run.config, finished_run.folder) as one:
    yield one


def test_addresses_are_refused(finished_run, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  config, address = finished_run.config, 's3://bucket/run'
  words = f"workdir must be a local folder, got the address '{address}'"
  with pytest.raises(errors.ConfigError, match=words):
    interactive.Experiment(config, address)
  with pytest.raises(errors.ConfigError, match=words):
    training.train(config, address)
  with pytest.raises(errors.ConfigError, match=words):
    with session.open_session(config, address):
      pass
  chosen = continuation.ContinuationConfig(parent=address)
  config = dataclasses.replace(config, continuation=chosen)
  words = 'config.continuation.parent must be a local folder, got the address'
  with pytest.raises(errors.ConfigError, match=words):
    with session.open_session(config, tmp_path):
      pass
  assert not [*tmp_path.iterdir()]


def test_session_fits_together(opened, finished_run):
  assert opened.config == finished_run.config
  assert opened.algorithm.name == 'fed_soft'
  assert opened.source.population.client_ids == opened.dataset.client_ids
  assert opened.store.load(np.arange(24)).num_updates.shape == (24,)
  assert opened.checkpoints.rounds()[-1] == 3


@pytest.mark.parametrize(('choice', 'chosen'), [('last', 3), (2, 2)])
def test_restore_takes_the_latest_or_the_named_round(opened, choice, chosen):
  restored, server_state = opened.restore(choice)
  assert restored == chosen
  assert server_state.importance_weights.shape == (24, 2)
  assert server_state.importance_weights.min() > 0
  assert opened.store.load(np.arange(24)).num_updates.max() > 0


_STORE = types.SimpleNamespace(seed=0)


def _fake(monkeypatch, saved):
  """Returns a session that has these checkpoints and nothing else."""
  monkeypatch.setattr(loop, 'initial_server_state', lambda *unused: 'initial')
  parts = dict.fromkeys(session.Session._fields) | {
    'source': types.SimpleNamespace(
      population=types.SimpleNamespace(num_clients=3)
    ),
    'store': _STORE,
    'checkpoints': types.SimpleNamespace(
      rounds=lambda: saved,
      find=lambda choice='last': saved[-1] if choice == 'last' else choice,
      restore=lambda *arguments, maps_all: arguments * maps_all,
    ),
  }
  return session.Session(**parts)


@pytest.mark.parametrize(('choice', 'chosen'), [('last', 5), (4, 4)])
def test_of_several_rounds_the_latest_or_the_named_one_is_restored(
  monkeypatch, choice, chosen
):
  restored = _fake(monkeypatch, [2, 4, 5]).restore(choice)
  assert restored == (chosen, (chosen, 'initial', _STORE))


def test_the_initial_state_comes_before_those_of_the_checkpoints(monkeypatch):
  assert list(_fake(monkeypatch, [3, 4]).saved_states()) == [
    (0, 'initial'),
    (3, (3, 'initial', _STORE)),
    (4, (4, 'initial', _STORE)),
  ]


def test_a_continued_run_has_no_initial_state(monkeypatch):
  continued = _fake(monkeypatch, [3, 4])._replace(
    parent=continuation.Parent('../parent', 3, 'v')
  )
  found = [round_num for round_num, _ in continued.saved_states()]
  assert found == [3, 4]


def test_without_a_checkpoint_there_are_no_saved_states(
  finished_run, digits_dataset
):
  with session.open_session(finished_run.config, digits_dataset) as fresh:
    with pytest.raises(errors.CheckpointError, match='holds no checkpoint'):
      list(fresh.saved_states())


def test_checkpoint_of_another_config_is_refused(finished_run):
  config = finished_run.config
  options = dataclasses.replace(config.algorithm.options, proximal_weight=3.0)
  other = dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )
  with session.open_session(other, finished_run.folder) as one:
    with pytest.raises(
      errors.CheckpointError,
      match=r'algorithm.proximal_weight: 0.01 there, 3.0 now',
    ):
      one.restore()


def test_what_was_opened_is_closed_again(finished_run):
  config = dataclasses.replace(
    finished_run.config, runtime=runtimes.RuntimeConfig('tff')
  )
  myself = psutil.Process()
  files = {file.path for file in myself.open_files()}
  with pytest.raises(KeyboardInterrupt):
    with session.open_session(config, finished_run.folder) as one:
      one.source.examples(0)
      assert [child for child in myself.children() if 'worker' in child.name()]
      raise KeyboardInterrupt
  assert not [child for child in myself.children() if 'worker' in child.name()]
  assert {file.path for file in myself.open_files()} <= files
