"""What moves is in the contract test, for every algorithm."""

import json
import shutil
import types

import numpy as np
import pytest

from tests.testing import continued, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import cache_folder, errors, sealed_json
from tff_algos.runtimes import debug_runtime
from tff_algos.training import checkpoint, continuation


def _case(**options):
  section = {**contract.section('cfl', 'logistic'), **options}
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.logistic()
  )
  debug = debug_runtime.DebugRuntime(algorithm, len(contract.SIZES))
  return types.SimpleNamespace(
    algorithm=algorithm, debug=debug, vectorized=debug
  )


@pytest.fixture(scope='module')
def parent(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'parent'
  return continued.Run(_case(), folder, contract.build_source()).train(2)


def _clients(parent, *client_ids, **others):
  return continued.population(parent.source, client_ids, **others)


def test_newcomers_get_the_cluster_of_their_lowest_loss(parent):
  copied = ('c000', 'c002', 'c003', 'c004', 'c001')
  new = {f'n{number}': client_id for number, client_id in enumerate(copied)}
  source = _clients(parent, 'c000', **new)
  child = parent.follow('newcomers', source)
  models = child.case.algorithm.cluster_weights(child.server_state)
  model = child.case.algorithm.cluster_model
  chosen = []
  for client in (1, 2, 3, 4):
    examples = source.examples(client)
    losses = [
      np.mean(
        model.example_losses(
          model.apply(
            {name: leaf[k] for name, leaf in models.items()}, examples.x
          ),
          examples.y,
        )
      )
      for k in range(2)
    ]
    chosen.append(int(np.argmin(losses)))
  assert set(chosen) == {0, 1}
  assert child.server_state.num_active == 2
  # c001 has no example: it stays in cluster 0.
  assert child.server_state.cluster_assignment.tolist()[1:] == [*chosen, 0]


def test_the_parent_is_named_by_a_relative_path(parent):
  child = parent.follow('named', parent.source)
  assert continuation.read_parent(child.folder) == child.parent
  assert child.parent == ('../parent', 2, 'parent', 5, 0, 0, 0)
  folder = continuation.parent_folder(child.folder, child.parent)
  assert folder == parent.folder
  assert child.checkpoints.starts_run(2)
  assert not parent.checkpoints.starts_run(2)


def test_the_parent_of_a_mirror_is_found_from_another_machine(
  parent, tmp_path, monkeypatch
):
  for home in ('a', 'home/b'):
    cache = tmp_path / home / 'cache'
    monkeypatch.setenv(cache_folder.VARIABLE, str(cache))
    found = continuation.find_parent(
      cache / 'stores' / 'run', parent.folder, _CONFIG
    )
    assert found.workdir == str(parent.folder)
    folder = continuation.parent_folder(cache / 'stores' / 'run', found)
    assert folder == parent.folder
  monkeypatch.setenv(cache_folder.VARIABLE, str(parent.folder.parent))
  sibling = parent.folder.with_name('sibling')
  found = continuation.find_parent(sibling, parent.folder, _CONFIG)
  assert found.workdir == '../parent'


def test_a_start_that_was_interrupted_is_repeated(parent):
  before = parent.follow('again', parent.source)
  shutil.rmtree(before.folder / checkpoint.FOLDER)
  found = continuation.find_parent(before.folder, '', _CONFIG)
  assert found == before.parent
  after = parent.follow('again', parent.source)
  np.testing.assert_equal(after.server_state, before.server_state)


def test_a_parent_that_has_lost_the_round_is_named(parent, tmp_path):
  copy = tmp_path / 'runs' / 'parent'
  shutil.copytree(parent.folder, copy)
  case, source = parent.case, parent.source
  child = continued.Run(case, copy, source).follow('child', source)
  for folder in (child.folder, copy):
    shutil.rmtree(folder / checkpoint.FOLDER)
  child = continued.Run(case, child.folder, source)
  found = continuation.find_parent(child.folder, '', _CONFIG)
  with pytest.raises(
    errors.CheckpointError, match='holds no checkpoint.* with --continue_from'
  ):
    continuation.start(
      found,
      child.folder,
      case.algorithm,
      case.debug,
      source,
      child.store,
      child.checkpoints,
      _CONFIG,
    )


_CONFIG = continuation.ContinuationConfig()


def test_a_started_run_keeps_its_parent(parent, tmp_path):
  child = parent.follow('started', parent.source)
  for given in ('', parent.folder):
    found = continuation.find_parent(child.folder, given, _CONFIG)
    assert found == child.parent
  with pytest.raises(
    errors.ConfigError, match=r'trained already, and continues \.\./parent\.'
  ):
    continuation.find_parent(child.folder, tmp_path, _CONFIG)
  with pytest.raises(errors.ConfigError, match='and continues no run'):
    continuation.find_parent(parent.folder, child.folder, _CONFIG)


def test_a_started_run_keeps_the_round_of_its_parent(parent):
  child = parent.follow('kept', parent.source)
  for text in ('last', 'best', '2'):
    config = continuation.ContinuationConfig(round=text)
    found = continuation.find_parent(child.folder, parent.folder, config)
    assert found == child.parent
  other = continuation.ContinuationConfig(round='1')
  with pytest.raises(errors.ConfigError, match='continues it after round 2'):
    continuation.find_parent(child.folder, parent.folder, other)


def test_a_parent_without_checkpoints_is_refused(tmp_path):
  with pytest.raises(errors.CheckpointError, match='run binaries.train first'):
    continuation.find_parent(tmp_path / 'child', tmp_path / 'none', _CONFIG)


@pytest.mark.parametrize(
  ('name', 'value', 'words'),
  [
    ('model', 'other', "its model is 'other', the config says 'toy'"),
    ('seed', 4, 'its seed is 4, the config says 3'),
    ('algorithm', {'name': 'ifca'}, "its algorithm is 'ifca', the config says"),
  ],
)
def test_a_parent_of_another_experiment_is_refused(
  parent, tmp_path, name, value, words
):
  other = continued.Run(parent.case, tmp_path / 'parent', parent.source)
  other.train(1)
  _change(other, lambda manifest: manifest['identity'].update({name: value}))
  with pytest.raises(errors.ConfigError, match=words):
    other.follow('child', parent.source)


def _change(run, change):
  path = run.folder / 'checkpoints' / 'round_000001' / 'checkpoint.json'
  manifest = json.loads(path.read_text())
  change(manifest)
  path.write_text(json.dumps(sealed_json.seal(manifest)))


def test_a_parent_with_other_client_states_is_refused(parent, tmp_path):
  other = continued.Run(parent.case, tmp_path / 'parent', parent.source)
  other.train(1)
  _change(other, lambda one: one.update(client_state=['float32[3]']))
  with pytest.raises(
    errors.ConfigError, match=r"client state there is \['float"
  ):
    other.follow('child', parent.source)


def test_a_parent_with_another_server_state_is_refused(parent):
  other = continued.Run(
    _case(num_clusters=3), parent.folder.with_name('three'), parent.source
  )
  with pytest.raises(
    errors.CheckpointError,
    match=r'server state with arrays of .* version of the program',
  ):
    continuation.start(
      continuation.Parent('../parent', 2, 'parent'),
      other.folder,
      other.case.algorithm,
      other.case.debug,
      other.source,
      other.store,
      other.checkpoints,
      _CONFIG,
    )


def test_few_known_clients_are_a_warning_and_none_are_refused(parent, caplog):
  strangers = {f'n{i}': f'c00{i}' for i in range(4)}
  known = _clients(parent, 'c004', **strangers)
  child = parent.follow('few', known, min_known=0.2)
  assert '1 of 5 clients (20%) have a state' in caplog.text
  assert child.parent[-4:] == (1, 0, 4, 4)
  with pytest.raises(
    errors.ConfigError, match=r'1 of 5 clients .*min_known is 0.3'
  ):
    parent.follow('fewer', known, min_known=0.3)
  assert not parent.folder.with_name('fewer').exists()


@pytest.mark.parametrize(
  'options',
  [
    {'optimizer': 'new'},
    {'round': 'bset'},
    {'schedule': ''},
    {'min_known': 2},
    {'keep_departed': -1},
  ],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError):
    continuation.ContinuationConfig(**options)
