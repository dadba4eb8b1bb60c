"""The gate on two rounds of a small regression, and on drawn scores."""

import dataclasses
import errno
import json
import pathlib
import shutil
import types
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment, exporting, session
from tff_algos.experiments.production import (
  gate_config,
  gate_record,
  gate_scores,
  gating,
  releasing,
)
from tff_algos.export import manifest, plain_prediction, releases

_PLAIN_PROGRAM = plain_prediction.__file__


class Gated(NamedTuple):
  """A run, and the gate's answers on two candidates against one champion."""

  config: experiment.ExperimentConfig
  folder: pathlib.Path  # Its candidate is that of `blessed`.
  target: pathlib.Path  # Its version 1 is round 1.
  refused: gate_record.GateRecord  # Round 1, poisoned.
  blessed: gate_record.GateRecord  # Round 2.


def _poison(structure):
  return tf.nest.map_structure(
    lambda leaf: leaf * -20 if leaf.dtype == np.float32 else leaf, structure
  )


def _write_poisoned(opened, round_num, server_state, output):
  class Store:
    def load(self, indices):
      return _poison(opened.store.load(indices))

  return _WRITE(
    opened._replace(store=Store()), round_num, _poison(server_state), output
  )


_WRITE = exporting.write_bundles


def _find_no_fault(*_):
  """Stands in for the process with TensorFlow alone."""
  checks = ('loads in plain TensorFlow', 'finite weights and predictions')
  return dict.fromkeys((*checks, 'predicts in time'), True), []


def _not_yet_judged(gated, folder, monkeypatch):
  """Copies the run without its judgement; its export copies its candidate."""
  monkeypatch.setattr(
    exporting,
    'write_bundles',
    lambda *arguments: shutil.copytree(
      gated.folder / 'candidate', arguments[-1]
    ),
  )
  shutil.copytree(gated.folder, folder)
  (folder / 'gate.json').unlink()
  return folder


@pytest.fixture(name='gated', scope='module')
def make_gated(trained_regressions, tmp_path_factory):
  root = tmp_path_factory.mktemp('gated')
  config, source = trained_regressions
  folder, target = root / 'run', root / 'export'
  shutil.copytree(source, folder)
  exporting.export(config, folder, 1, export_dir=target)
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(gating, '_check_plainly', _find_no_fault)
    with pytest.MonkeyPatch.context() as poisoned:
      poisoned.setattr(exporting, 'write_bundles', _write_poisoned)
      refused = gating.gate(config, folder, target, 1)
    blessed = gating.gate(config, folder, target)
  return Gated(config, folder, target, refused, blessed)


def test_better_round_is_blessed(gated):
  record = gated.blessed
  assert record.blessed and not record.reasons
  assert record.round_num == 2
  assert record.config_hash == experiment.config_hash(gated.config)
  assert record.thresholds == config_lib.to_dict(gated.config.gate)
  assert record.candidate == gating.candidate_sha256(gated.folder)
  assert record.champion == gating.champion_sha256(gated.target)
  assert record.champion_version == 1
  assert record.checks == {
    'loads in plain TensorFlow': True,
    'finite weights and predictions': True,
    'predicts in time': True,
    'signatures of the champion': True,
    'finite scores': True,
  }
  names = [group.name for group in record.groups]
  assert 'overall' in names and 'worst decile' in names
  assert {'cluster 0', 'cluster 1'} & {*names}
  assert sum(name.startswith('held out ') for name in names) == 2
  assert sum(name.startswith('source ') for name in names) == 2
  assert 'newcomers' not in names


def test_poisoned_round_is_refused_with_figures(gated):
  record = gated.refused
  assert not record.blessed and record.round_num == 1
  overall = {group.name: group for group in record.groups}['overall']
  assert overall.result == 'refused' and overall.num_units == 12
  assert overall.candidate > overall.champion
  relative = overall.candidate / overall.champion - 1
  assert overall.fall == pytest.approx(relative)
  assert 0.01 < overall.low < overall.fall < overall.high
  assert any(reason.startswith('overall: mse') for reason in record.reasons)
  held_out = [g for g in record.groups if g.name.startswith('held out')]
  assert [group.result for group in held_out] == ['refused'] * 2


def test_record_is_written(gated):
  assert gate_record.read(gated.folder) == gated.blessed
  text = (gated.folder / 'gate.json').read_text()
  assert json.loads(text)['groups'][0]['num_units'] == 12
  assert '"seconds"' not in text and str(gated.folder) not in text


def test_record_that_holds_is_kept(gated, tmp_path, monkeypatch):
  def fail(*_):
    raise AssertionError('exported again')

  monkeypatch.setattr(exporting, 'write_bundles', fail)
  assert gating.gate(gated.config, gated.folder, gated.target) == gated.blessed
  with pytest.raises(AssertionError, match='exported again'):
    gating.gate(
      gated.config,
      shutil.copytree(gated.folder, tmp_path / 'run'),
      gated.target,
      1,
    )


@pytest.mark.verify
def test_gating_anew_gives_the_same_bytes(gated, tmp_path, monkeypatch):
  """Also of the candidate: its checksums are in the record."""
  monkeypatch.setattr(gating, '_check_plainly', _find_no_fault)
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  before = (folder / 'gate.json').read_bytes()
  (folder / 'gate.json').unlink()
  gating.gate(gated.config, folder, gated.target)
  assert (folder / 'gate.json').read_bytes() == before


def _break_champion(gated, tmp_path):
  target = shutil.copytree(gated.target, tmp_path / 'broken')
  (target / 'cluster_models' / '1' / 'saved_model.pb').write_text('')
  return target


def test_champion_that_does_not_load_is_one_error(gated, tmp_path):
  target = _break_champion(gated, tmp_path)
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  (folder / 'gate.json').unlink()
  with pytest.raises(
    errors.ExportError,
    match=r'cannot be compared with.*has changed.*ignore_broken_champion=true',
  ):
    gating.gate(gated.config, folder, target)
  assert not (folder / 'gate.json').exists()


@pytest.mark.parametrize(
  'error',
  [
    MemoryError(),
    OSError(errno.EIO, 'Input/output error'),
    OSError(errno.EMFILE, 'Too many open files'),
  ],
)
@pytest.mark.parametrize('is_ignored', [False, True])
def test_an_error_of_the_machine_is_no_broken_champion(
  gated, monkeypatch, error, is_ignored
):
  def fail(folder):
    raise error

  failing = types.SimpleNamespace(file_sha256=fail)
  monkeypatch.setattr(manifest, 'records', failing)
  config = gate_config.GateConfig(ignore_broken_champion=is_ignored)
  with (
    experiment.open_dataset(gated.folder) as dataset,
    pytest.raises(errors.InfrastructureError, match='cannot be loaded for lac'),
  ):
    gating._load_champion(gated.target, config, dataset)


def test_champion_of_another_scale_is_not_compared(gated, tmp_path):
  target = shutil.copytree(gated.target, tmp_path / 'export')
  for path in target.glob('*/1/assets.extra/bundle.json'):
    content = json.loads(path.read_text())
    content['features']['scale'] = 0.5
    path.write_text(json.dumps(content))
  with (
    experiment.open_dataset(gated.folder) as dataset,
    pytest.raises(
      errors.ExportError,
      match=r'cannot be compared with.* in scale: 1.0 there, 0.5 here',
    ),
  ):
    gating._load_champion(target, gated.config.gate, dataset)


@pytest.mark.verify
def test_champion_that_does_not_load_is_ignored_if_told(
  gated, tmp_path, monkeypatch
):
  monkeypatch.setattr(gating, '_check_plainly', _find_no_fault)
  config = dataclasses.replace(
    gated.config, gate=gate_config.GateConfig(ignore_broken_champion=True)
  )
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  record = gating.gate(config, folder, _break_champion(gated, tmp_path))
  assert record.blessed and not record.groups
  assert 'has changed' in record.ignored_champion
  assert record.ignored_version == 1


def test_model_that_is_not_finite_is_refused(gated, tmp_path, monkeypatch):
  def fail(*_):
    raise errors.NonFiniteError('kernel must be finite, but 3 values are not')

  monkeypatch.setattr(exporting, 'write_bundles', fail)
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  record = gating.gate(gated.config, folder, gated.target, 1)
  assert not record.blessed and record.candidate == {}
  assert record.reasons == ('kernel must be finite, but 3 values are not',)
  assert not (folder / 'candidate').exists()
  assert 'round 1 against version 1: refused' in gate_record.as_text(record)
  # Its champion is that of the record: nothing is exported again.
  monkeypatch.setattr(exporting, 'write_bundles', None)
  assert gating.gate(gated.config, folder, gated.target, 1) == record


def test_scores_that_are_not_finite_are_refused(gated, tmp_path, monkeypatch):
  """Three of 24 clients, whose falls an interval of all might miss."""
  score_clients = gate_scores.score_clients

  def diverge(*arguments):
    scores = score_clients(*arguments)
    for i in range(3):
      scores[i].candidate[:] = np.inf
    scores[3].champion[:] = np.nan
    return scores

  monkeypatch.setattr(gate_scores, 'score_clients', diverge)
  monkeypatch.setattr(gating, '_check_plainly', _find_no_fault)
  folder = _not_yet_judged(gated, tmp_path / 'run', monkeypatch)
  record = gating.gate(gated.config, folder, gated.target)
  assert not record.blessed and not record.checks['finite scores']
  assert record.reasons[0].startswith('scores are NaN or infinite in: overall')
  overall = record.groups[0]
  assert overall.num_units == gated.blessed.groups[0].num_units - 4
  assert np.isfinite(overall.low) and overall.result == 'passed'


def test_other_signatures_are_refused(gated, monkeypatch):
  """Not those that the champion does not have yet."""
  of_calls = iter(
    [{'classify': 'then', 'old': 1}, {'classify': 'changed', 'new': 2}]
  )
  monkeypatch.setattr(
    gate_scores.bundles.LoadedBundles,
    'signatures',
    lambda self: {'cluster': next(of_calls)},
  )
  with experiment.open_dataset(gated.folder) as dataset:
    exported = gate_scores.load(gating._find(gated.target, dataset))
  assert gating._signature_differences(exported, exported) == [
    'cluster.classify: then there, changed now',
    'cluster.old: 1 there, absent now',
  ]


def test_a_plain_process_that_hangs_or_is_killed_is_no_refusal(
  gated, tmp_path, monkeypatch
):
  folder = _not_yet_judged(gated, tmp_path / 'run', monkeypatch)
  with monkeypatch.context() as patched:
    patched.setattr(gating, '_PLAIN_SECONDS', 0)
    with pytest.raises(errors.InfrastructureError, match='within 0 seconds'):
      gating.gate(gated.config, folder, gated.target)
  program = tmp_path / 'killed.py'
  program.write_text('import os\nos.kill(os.getpid(), 9)\n')
  monkeypatch.setattr(gating.plain_prediction, '__file__', str(program))
  with pytest.raises(errors.InfrastructureError, match='ended by SIGKILL'):
    gating.gate(gated.config, folder, gated.target)
  program.write_text(
    'import runpy, sys\n'
    'import tensorflow as tf\n'
    'def load(folder):\n'
    '  raise tf.errors.ResourceExhaustedError(None, None, "OOM")\n'
    'tf.saved_model.load = load\n'
    f'runpy.run_path({_PLAIN_PROGRAM!r}, run_name="__main__")\n'
  )
  with pytest.raises(errors.InfrastructureError, match='lack of memory.*OOM'):
    gating.gate(gated.config, folder, gated.target)
  assert not (folder / 'gate.json').exists()
  # TensorFlow may be found by the environment alone; its checks abort.
  packages = tmp_path / 'packages'
  packages.mkdir()
  (packages / 'of_environment.py').touch()
  monkeypatch.setenv('PYTHONPATH', str(packages))
  program.write_text('import os, of_environment\nos.abort()\n')
  record = gating.gate(gated.config, folder, gated.target)
  assert not record.blessed and 'does not load' in record.reasons[0]


def test_a_round_is_released_if_its_candidate_is_there(gated, tmp_path):
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  bundles = {'bundles': gated.blessed.candidate}
  history = [types.SimpleNamespace(**bundles)]
  with mock.patch.object(releases, 'read_history', lambda _: history):
    assert gating.is_released(gated.config, folder, gated.target)
    shutil.rmtree(folder / 'candidate')
    assert not gating.is_released(gated.config, folder, gated.target)


def test_a_private_run_of_another_seed_is_gated_anew(
  gated, tmp_path, monkeypatch
):
  """The hash that is published is the same."""
  exported = []

  def fail(*_):
    exported.append(None)
    raise errors.NonFiniteError('NaN')

  open_session = session.open_session
  monkeypatch.setattr(exporting, 'write_bundles', fail)
  monkeypatch.setattr(
    session,
    'open_session',
    lambda _, folder: open_session(gated.config, folder),
  )
  privacy = dataclasses.replace(gated.config.privacy, noise_multiplier=1.0)
  first, other = (
    dataclasses.replace(gated.config, privacy=privacy, seed=seed)
    for seed in (0, 1)
  )
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  for config in (first, first, other):
    gating.gate(config, folder, round_choice=1)
  assert len(exported) == 2
  with pytest.raises(errors.ExportError, match='gate.json is stale'):
    releasing.release(first, folder)
  with pytest.raises(errors.NotApprovedError):
    releasing.release(other, folder)
  monkeypatch.setattr(gating, '_has_candidate', lambda *_: True)
  monkeypatch.setattr(gating, 'find_release', lambda *_: object())
  assert not gating.is_released(first, folder, tmp_path, 1)
  assert gating.is_released(other, folder, tmp_path, 1)


@pytest.mark.parametrize(
  'check', ['predicts in time', 'loads in plain TensorFlow']
)
def test_what_a_machine_may_be_the_reason_of_is_checked_again(
  gated, tmp_path, monkeypatch, check
):
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  checks = {**gated.blessed.checks, check: False}
  gate_record.write(
    folder,
    dataclasses.replace(
      gated.blessed, blessed=False, reasons=(check,), checks=checks
    ),
  )
  monkeypatch.setattr(gating, '_check_plainly', _find_no_fault)
  assert gating.gate(gated.config, folder, gated.target) == gated.blessed


def test_other_thresholds_are_asked_of_what_was_not_released(
  gated, tmp_path, monkeypatch
):
  monkeypatch.setattr(gating, '_check_plainly', _find_no_fault)
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  config = dataclasses.replace(
    gated.config, gate=gate_config.GateConfig(max_fall=0.5)
  )
  record = gating.gate(config, folder, gated.target)
  assert record.subject == gated.blessed.subject
  assert record.candidate == gated.blessed.candidate
  assert record.groups[0].threshold == 0.5


@pytest.mark.verify
def test_plain_process_checks_weights_time_and_loading(gated, tmp_path):
  with experiment.open_dataset(gated.folder) as dataset:
    found = gating._find(gated.target, dataset)
    checks, reasons = gating._check_plainly(
      found, dataset, gate_config.GateConfig(max_batch_seconds=1e-9)
    )
    assert checks['loads in plain TensorFlow']
    assert not checks['predicts in time']
    assert reasons == ['a batch of 32 examples takes longer than 1e-09 seconds']
    (tmp_path / 'assets.extra').mkdir()
    broken = [found[1]._replace(folder=tmp_path)]
    checks, reasons = gating._check_plainly(
      broken, dataset, gate_config.GateConfig()
    )
  assert checks == {'loads in plain TensorFlow': False}
  assert len(reasons) == 1 and 'does not load' in reasons[0]


def _units(name, before, after, threshold=0.01):
  return gating._Units(name, np.array(before), np.array(after), threshold)


def _judge(config, units):
  return gating._judge(units, config, 1, higher_is_better=True)


def test_small_groups_do_not_refuse_and_empty_ones_are_left_out(gated, caplog):
  groups = _judge(
    gated.config,
    [
      _units('small', [1.0] * 7, [0.0] * 7),
      _units('large', [1.0] * 8, [0.0] * 8),
      _units('empty', [], []),
    ],
  )
  assert [(group.name, group.result) for group in groups] == [
    ('small', 'too small'),
    ('large', 'refused'),
  ]
  assert 'min_units' not in caplog.text
  _judge(gated.config, [_units('small', [1.0] * 7, [0.0] * 7)])
  assert 'config.gate.min_units=8 units, the largest has 7' in caplog.text


def test_fall_up_to_the_threshold_is_tolerated(gated):
  levels = np.linspace(0.2, 0.9, 20)
  tolerated, refused = _judge(
    gated.config,
    [
      _units('tolerated', levels, levels - 0.0099),
      _units('refused', levels, levels - 0.0101),
    ],
  )
  assert (tolerated.result, refused.result) == ('passed', 'refused')


def test_false_alarms_of_all_groups_together(gated):
  """The worst case: every true fall is exactly the threshold.

  Nine groups of 24 clients, 60 nights: at 5 % three are expected, and more than
  eight have a probability below 1 %; without sharing the level among the groups
  about 25 would be refused.
  """
  rng = np.random.default_rng(1)
  config = dataclasses.replace(
    gated.config, gate=gate_config.GateConfig(num_resamples=3000)
  )
  refusals = 0
  for _ in range(60):
    units = []
    for i in range(9):
      level = rng.beta(6, 2, 24)
      before, after = (rng.binomial(12, level) / 12 for _ in range(2))
      units.append(_units(f'group {i}', before, after, threshold=0.0))
    refusals += any(
      group.result == 'refused' for group in _judge(config, units)
    )
  assert refusals <= 8


def test_groups_of_clients():
  def client(client_id, group, is_known, cluster_id, planted, score):
    return gate_scores.Scores(
      client_id,
      group,
      is_known,
      cluster_id,
      planted,
      np.array([0, 1]),
      np.ones(2),
      np.array([1.0, 0.0]),
      np.array([score, score]),
    )

  scores = [
    client('a', 'participating', True, 0, 1, 0.1),
    client('b', 'participating', False, 1, 0, 0.2),
    client('c', 'unseen', False, 1, 1, 0.3),
    client('d', 'participating', True, -1, 0, 0.4),
  ]

  class Dataset:
    class schema:  # noqa: N801
      num_sources = 2

    source_names = ('up', 'down')

  class Model:
    higher_is_better = True

  found = {
    units.name: units
    for units in gating._client_groups(
      gate_config.GateConfig(), scores, Dataset, 2, Model
    )
  }
  assert {name: units.candidate.tolist() for name, units in found.items()} == {
    'overall': [0.1, 0.2, 0.4],
    'unseen': [0.3],
    'newcomers': [0.2],
    'worst decile': [0.1, 0.2, 0.4],
    'cluster 0': [0.1],
    'cluster 1': [0.2, 0.3],
    'source up': [0.1, 0.2, 0.3, 0.4],
    'source down': [0.1, 0.2, 0.3, 0.4],
    'planted cluster 0': [0.2, 0.4],
    'planted cluster 1': [0.1, 0.3],
  }
  assert found['overall'].champion.tolist() == [0.5] * 3
  assert found['source up'].champion.tolist() == [1.0] * 4
  assert found['source down'].champion.tolist() == [0.0] * 4
  thresholds = {name: units.threshold for name, units in found.items()}
  assert thresholds['overall'] == 0.01 and thresholds['worst decile'] == 0.05


def test_interrupted_release_is_completed_first(gated, tmp_path):
  """The champion is what the next server start would find."""
  target = shutil.copytree(gated.target, tmp_path / 'export')
  for model in releases.MODELS:
    (target / model / '1').rename(target / model / '.releasing-1')
  folder = shutil.copytree(gated.folder, tmp_path / 'run')
  assert gating.gate(gated.config, folder, target) == gated.blessed
