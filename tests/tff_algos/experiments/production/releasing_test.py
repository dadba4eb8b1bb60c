"""Releases of gated candidates: what is demanded, and only once."""

import dataclasses
import json
import pathlib
import re
import shutil
from typing import NamedTuple

import pytest

from tests.testing import saved_run
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import experiment, exporting
from tff_algos.experiments.production import (
  gate_record,
  gating,
  lineage,
  releasing,
)
from tff_algos.export import labels, manifest, releases


class Run(NamedTuple):
  config: experiment.ExperimentConfig
  folder: pathlib.Path
  target: pathlib.Path


@pytest.fixture(name='gated', scope='module')
def make_gated(trained_regressions, tmp_path_factory):
  """A run whose round 2 is the blessed candidate, not released yet."""
  root = tmp_path_factory.mktemp('releasing')
  config, source = trained_regressions
  shutil.copytree(source, root / 'run')
  gating.gate(config, root / 'run', root / 'export')
  return Run(config, root / 'run', root / 'export')


@pytest.fixture(name='run')
def make_run(gated, tmp_path):
  """A copy to release."""
  shutil.copytree(gated.folder, tmp_path / 'run')
  return Run(gated.config, tmp_path / 'run', tmp_path / 'export')


def _change_record(run, **changes):
  record = gate_record.read(run.folder)
  gate_record.write(run.folder, dataclasses.replace(record, **changes))


def test_files_of_the_candidate_are_released_once(run):
  release = releasing.release(*run)
  record = gate_record.read(run.folder)
  assert release.gated and release.version == 1 and release.round_num == 2
  assert (
    release.bundles == record.candidate == gating.champion_sha256(run.target)
  )
  for model in releases.MODELS:
    ours = run.folder / 'candidate' / model / '1'
    for name in saved_run.files(ours):
      published = run.target / model / '1' / name
      assert published.read_bytes() == (ours / name).read_bytes()
  before = {
    name: (run.target / name).stat().st_mtime_ns
    for name in saved_run.files(run.target)
  }
  assert releasing.release(*run) == release
  assert before == {
    name: (run.target / name).stat().st_mtime_ns
    for name in saved_run.files(run.target)
  }
  # The gate, asked again, compares a released candidate not with itself.
  assert gating.gate(*run) == record


def test_lineage_is_in_the_run_and_in_the_bundles(run):
  releasing.release(*run)
  content = sealed_json.read(run.folder / 'lineage.json', '')
  assert len(content.pop('run_hash')) == 16
  assert content['releases'] == [{'export_dir': '../export', 'version': 1}]
  assert content['gate']['blessed'] is True
  for model in releases.MODELS:
    path = run.target / model / '1' / 'assets.extra' / 'lineage.json'
    copy = json.loads(path.read_text())
    assert copy.pop('version') == 1 and copy.pop('rollback_of') is None
    assert copy == {
      key: value for key, value in content.items() if key != 'releases'
    }
  before = (run.folder / 'lineage.json').read_bytes()
  (run.folder / 'lineage.json').unlink()
  lineage.write(run.config, run.folder, run.target)
  assert (run.folder / 'lineage.json').read_bytes() == before


def test_nothing_is_released_without_a_gate(run):
  (run.folder / 'gate.json').unlink()
  with pytest.raises(errors.ExportError, match='run binaries.gate first.*noga'):
    releasing.release(*run)
  assert not run.target.exists()


def test_refused_candidate_is_not_released(run):
  _change_record(run, blessed=False, reasons=('overall: it fell',))
  with pytest.raises(errors.NotApprovedError, match='overall: it fell'):
    releasing.release(*run)
  assert not run.target.exists()


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'round_num': 1}, 'is of round 1, not 2'),
    ({'config_hash': '0'}, 'is of config 0, not'),
    ({'thresholds': {'max_fall': 9.0}}, 'has other thresholds now'),
    ({'dataset_version': '0'}, 'the dataset is now'),
    ({'candidate': {'cluster_models': '0'}}, 'exported again since'),
    ({'champion': {'cluster_models': '0'}, 'champion_version': 6}, 'version 6'),
  ],
)
def test_stale_record_is_refused(run, changes, words):
  _change_record(run, **changes)
  with pytest.raises(errors.ExportError, match=f'gate.json is stale.*{words}'):
    releasing.release(*run, round_choice=2)
  assert not releases.current_bundles(run.target)


def test_changed_candidate_is_refused(run):
  path = run.folder / 'candidate' / 'cluster_models' / '1' / 'saved_model.pb'
  path.write_bytes(path.read_bytes() + b'x')
  with pytest.raises(errors.ExportError, match='has changed since'):
    releasing.release(*run)


def _publish_other(run):
  """Releases a bundle of another run on the same path."""
  other = run.folder.with_name('other')
  for model in releases.MODELS:
    bundle = shutil.copytree(
      run.folder / 'candidate' / model / '1', other / model
    )
    path = bundle / 'assets.extra' / 'bundle.json'
    path.write_text(path.read_text() + '\n')
  with releases.opened(run.target) as path:
    path.release(
      {model: other / model for model in releases.MODELS},
      releases.Release(0, {}, '../other', 1, 'c', 'd', True),
      {},
    )


def test_champion_of_before_is_not_the_current_one(run):
  _publish_other(run)
  with pytest.raises(errors.ExportError, match='no champion, and now there'):
    releasing.release(*run)


def test_the_broken_version_is_still_the_current_one(run):
  _publish_other(run)
  _change_record(run, ignored_champion='it is broken', ignored_version=1)
  assert releasing.release(*run).version == 2


def test_another_version_than_the_broken_one_is_current(run):
  for _ in range(2):
    _publish_other(run)
    shutil.rmtree(run.folder.with_name('other'))
  _change_record(run, ignored_champion='it is broken', ignored_version=1)
  with pytest.raises(errors.ExportError, match='it ignored version 1, which'):
    releasing.release(*run)


def test_a_tracker_that_failed_is_asked_again(run, monkeypatch):
  sent = []

  def register(config, folder, bundles):
    sent.append([f'{one.parent.name}/{one.name}' for one in bundles])
    if len(sent) == 1:
      raise errors.InfrastructureError('away')

  monkeypatch.setattr(releasing.tracking, 'register', register)
  with pytest.raises(errors.InfrastructureError, match='away'):
    releasing.release(*run)
  for _ in range(2):
    releasing.release(*run)
  assert sent == [['cluster_models/1', 'personalized_models/1']] * 2


def test_released_candidate_stays_released_when_others_follow(run):
  """A night that is started again for an old date does not become current."""
  first = releasing.release(*run)
  _publish_other(run)
  assert releasing.release(*run) == first
  assert len(releases.read_history(run.target)) == 2


def test_what_was_released_is_not_released_with_other_thresholds(run):
  first = releasing.release(*run)
  gate = dataclasses.replace(run.config.gate, max_fall=0.5)
  other = run._replace(config=dataclasses.replace(run.config, gate=gate))
  assert gating.gate(*other) == gate_record.read(run.folder)
  assert releasing.release(*other) == first


def test_old_versions_go(run):
  """Of three of the same content; 1 has that of a rollback."""
  releasing.release(*run)
  for _ in range(3):
    _publish_other(run)
    shutil.rmtree(run.folder.with_name('other'))
  releasing.release(*run, keep_versions=2)
  kept = sorted(p.name for p in (run.target / 'cluster_models').iterdir())
  assert kept == ['1', '3', '4']


def test_damaged_labels_are_told_before_a_release(run):
  run.target.mkdir()
  (run.target / 'labels.json').write_text('{')
  with pytest.raises(errors.ExportError, match='labels.json'):
    releasing.release(*run, keep_versions=2)
  with pytest.raises(errors.ExportError, match='labels.json'):
    exporting.export(
      run.config, run.folder, export_dir=run.target, keep_versions=2
    )
  assert releases.read_history(run.target) == []
  assert releasing.release(*run).version == 1


def test_a_canary_keeps_requests_from_a_release(run, caplog):
  _publish_other(run)
  labelled = labels.Labels({'stable': 1, 'canary': 1}, 0.1)
  labels.assign(run.target, ['cluster_models'], labelled)
  gating.gate(*run)
  assert releasing.release(*run).version == 2
  told = 'Requests to cluster_models that name no version .* stable=1, canary=1'
  assert re.search(told, caplog.text)
  assert 'Requests to personalized_models' not in caplog.text


def test_two_export_paths_of_one_run(run, tmp_path, monkeypatch):
  registered = []
  monkeypatch.setattr(
    releasing.tracking,
    'register',
    lambda config, folder, bundles: registered.append(bundles[0].parents[1]),
  )
  other = run._replace(target=tmp_path / 'shared')
  releasing.release(*run)
  gating.gate(*other)
  releasing.release(*other)
  content = sealed_json.read(run.folder / 'lineage.json', '')
  both = [
    {'export_dir': '../export', 'version': 1},
    {'export_dir': '../shared', 'version': 1},
  ]
  assert content['releases'] == both
  gating.gate(*run)
  releasing.release(*run)
  assert registered == [run.target, other.target]
  content = sealed_json.read(run.folder / 'lineage.json', '')
  assert content['releases'] == [*reversed(both)]


def test_ungated_export_counts_on_the_same_path(run):
  releasing.release(*run)
  paths = exporting.export(
    run.config, run.folder, 1, export_dir=run.target, keep_versions=2
  )
  assert [path.name for path in paths] == ['2', '2']
  assert not list(run.target.rglob('.writing*'))
  history = releases.read_history(run.target)
  assert [one.gated for one in history] == [True, False]
  assert history[1].run == '../run' and history[1].round_num == 1
  assert history[1].bundles['cluster_models'] == manifest.bundle_sha256(
    paths[0]
  )
  assert releases.read_lineage(run.target, 2)['gate'] is None
