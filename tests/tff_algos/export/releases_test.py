"""Releases of an export path: numbers, history, rollback, kills."""

import errno
import json
import os
import pathlib
import shutil

import pytest

from tests.testing import exportable, power_loss, saved_run
from tff_algos.core import errors
from tff_algos.export import labels, manifest, releases
from tff_algos.serving import models

_ENTRY = releases.Release(
  version=0,
  bundles={},
  run='../runs/a',
  round_num=3,
  config_hash='c',
  dataset_version='d',
  gated=True,
)


def _write_candidate(folder, content):
  """Writes tiny bundles; returns model -> folder."""
  candidate = {}
  for model in releases.MODELS:
    bundle = candidate[model] = folder / model / '1'
    (bundle / manifest.EXTRA_FOLDER).mkdir(parents=True)
    (bundle / 'saved_model.pb').write_text(f'{model} {content}')
    manifest.write_manifest(bundle, exportable.PROVENANCE, {})
  return candidate


@pytest.fixture(name='candidates')
def make_candidates(tmp_path):
  return [
    _write_candidate(tmp_path / f'candidate_{i}', f'content {i}')
    for i in range(4)
  ]


@pytest.fixture(name='target')
def make_target(tmp_path):
  return tmp_path / 'production' / 'export'


def _release(target, candidate, round_num=3):
  with releases.opened(target) as path:
    entry = releases.dataclasses.replace(_ENTRY, round_num=round_num)
    return path.release(candidate, entry, {'round_num': round_num})


def _rollback(target, version=None):
  with releases.opened(target) as path:
    return path.rollback(version)


def _remove_old(target, keep_versions):
  with releases.opened(target) as path:
    return path.remove_old(keep_versions)


def _content(target):
  """Returns what servers take: model -> (version, content)."""
  return {
    model: (int(bundle.name), (bundle / 'saved_model.pb').read_text())
    for model, bundle in releases.current_bundles(target).items()
  }


def _expected(version, content):
  return {
    model: (version, f'{model} content {content}') for model in releases.MODELS
  }


def test_releases_count_on_with_one_number_for_both(target, candidates):
  for i in (0, 1):
    published = _release(target, candidates[i], i)
    assert {folder.name for folder in published.values()} == {str(i + 1)}
    assert _content(target) == _expected(i + 1, i)
  history = releases.read_history(target)
  assert [one.version for one in history] == [1, 2]
  assert [one.round_num for one in history] == [0, 1]
  for i, release in enumerate(history):
    assert release.bundles == {
      model: manifest.bundle_sha256(bundle)
      for model, bundle in candidates[i].items()
    }
  for folder in published.values():
    manifest.verify_files(folder)
  assert releases.read_lineage(target, 2) == {
    'round_num': 1,
    'version': 2,
    'rollback_of': None,
  }


def test_versions_of_before_are_counted(target, candidates):
  """Each model had its own number before there were releases."""
  (target / 'cluster_models' / '4').mkdir(parents=True)
  (target / 'personalized_models' / '7').mkdir(parents=True)
  published = _release(target, candidates[0])
  assert {folder.name for folder in published.values()} == {'8'}


def test_files_are_linked_and_lineage_is_not(target, candidates):
  _release(target, candidates[0])
  _release(target, candidates[1])
  _rollback(target)
  first, third = (target / 'cluster_models' / version for version in ('1', '3'))
  assert (first / 'saved_model.pb').samefile(third / 'saved_model.pb')
  assert (first / 'saved_model.pb').samefile(
    candidates[0]['cluster_models'] / 'saved_model.pb'
  )
  assert releases.read_lineage(target, 1)['rollback_of'] is None
  assert releases.read_lineage(target, 3) == {
    'round_num': 3,
    'version': 3,
    'rollback_of': 1,
  }


def test_files_are_copied_where_links_are_not_possible(
  target, candidates, monkeypatch
):
  def refuse(*_):
    raise OSError(18, 'Invalid cross-device link')

  monkeypatch.setattr(os, 'link', refuse)
  _release(target, candidates[0])
  assert _content(target) == _expected(1, 0)


def test_a_full_disk_while_files_are_copied(target, candidates, monkeypatch):
  def refuse(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(os, 'link', refuse)
  monkeypatch.setattr(shutil, 'copyfile', refuse)
  with pytest.raises(OSError, match='No space') as error:
    _release(target, candidates[0])
  assert errors.is_of_disk(error.value)
  assert not [path for path in target.rglob('*') if path.is_file()]


def test_rollback_goes_back_release_by_release(target, candidates):
  for candidate in candidates[:3]:
    _release(target, candidate)
  assert _rollback(target).origin == 2
  assert _content(target) == _expected(4, 1)
  # Not to version 3, which came before by number.
  assert _rollback(target).origin == 1
  assert _content(target) == _expected(5, 0)
  with pytest.raises(errors.ExportError, match='no version that was released'):
    _rollback(target)
  assert _rollback(target, version=3).version == 6
  assert _content(target) == _expected(6, 2)
  history = releases.read_history(target)
  assert [one.rollback_of for one in history] == [None] * 3 + [2, 1, 3]
  # Counts go on behind a rollback.
  assert _release(target, candidates[3])['cluster_models'].name == '7'


def test_a_release_after_a_rollback_goes_back_to_what_was_current(
  target, candidates
):
  for candidate in candidates[:3]:
    _release(target, candidate)
  _rollback(target)
  _release(target, candidates[3])
  # Not to version 3, which was rolled back.
  assert _rollback(target).origin == 2
  assert _content(target) == _expected(6, 1)
  assert _rollback(target).origin == 1


def test_rollback_goes_to_other_content(target, candidates):
  """As of a checkpoint that is exported twice."""
  for index in (0, 1, 1):
    _release(target, candidates[index])
  with releases.opened(target) as path:
    assert path.rollback(2).version == 3  # It is current already.
  assert _rollback(target).origin == 1
  assert _content(target) == _expected(4, 0)
  _release(target, candidates[1])
  assert _rollback(target).origin == 1
  _remove_old(target, keep_versions=2)
  with pytest.raises(errors.ExportError, match='current content, version 1'):
    _rollback(target)


def test_a_damaged_lineage_is_named(target, candidates):
  folder = _release(target, candidates[0])['cluster_models']
  path = folder / 'assets.extra' / 'lineage.json'
  path.unlink()
  path.write_text('{"ver')
  with pytest.raises(errors.ExportError, match='lineage.json is damaged'):
    releases.read_lineage(target, 1)


def test_rollback_to_the_current_content_does_nothing(target, candidates):
  _release(target, candidates[0])
  _release(target, candidates[1])
  first = _rollback(target, version=1)
  before = saved_run.files(target)
  assert _rollback(target, version=1) == first
  assert _rollback(target, version=3) == first
  assert saved_run.files(target) == before


def test_labels_that_keep_requests_from_a_rollback_are_named(
  target, candidates
):
  for candidate in candidates[:3]:
    _release(target, candidate)
  _rollback(target)  # Version 4 is 2 once more.
  for versions, share, elsewhere in (
    ({}, None, {}),
    # 1 was current before 2; 2 and 4 are the same.
    ({'old': 1, 'good': 2, 'same': 4}, None, {}),
    ({'old': 1, 'new': 3}, None, {'new': 3}),
    ({'stable': 2, 'canary': 4}, 0.1, {}),
    ({'stable': 2, 'canary': 3}, 0.1, {'canary': 3}),
    ({'stable': 1, 'canary': 4}, 0.1, {'stable': 1}),
    ({'stable': 1, 'canary': 4}, None, {}),
  ):
    labels.assign(target, ['cluster_models'], labels.Labels(versions, share))
    with releases.opened(target) as path:
      expected = {'cluster_models': elsewhere} if elsewhere else {}
      assert path.labels_elsewhere() == expected


def test_rollback_to_what_is_not_there(target, candidates):
  with pytest.raises(errors.ExportError, match='no export path'):  # noqa: SIM117
    with releases.opened(target, must_exist=True):
      pass
  with pytest.raises(errors.ExportError, match='no release to roll back to'):
    _rollback(target)
  _release(target, candidates[0])
  with pytest.raises(errors.ExportError, match='version 9; it has 1$'):
    _rollback(target, 9)


def test_rollback_to_changed_files_is_refused(target, candidates):
  _release(target, candidates[0])
  _release(target, candidates[1])
  path = target / 'personalized_models' / '1' / 'saved_model.pb'
  path.write_text('changed')
  with pytest.raises(errors.ExportError, match='has changed since'):
    _rollback(target)
  assert _content(target) == _expected(2, 1)


def test_the_current_version_and_the_one_before_stay(target, candidates):
  for candidate in candidates:
    _release(target, candidate)
  assert _remove_old(target, 3) == [1]
  assert _remove_old(target, 3) == []
  assert _remove_old(target, 2) == [2]
  for keep_versions in (0, 1):
    with pytest.raises(errors.ConfigError, match='integer >= 2'):
      _remove_old(target, keep_versions)
  for model in releases.MODELS:
    assert sorted(path.name for path in (target / model).iterdir()) == [
      '3',
      '4',
    ]
  # A number is never used again, and the history keeps what was.
  assert [one.version for one in releases.read_history(target)] == [1, 2, 3, 4]
  with pytest.raises(errors.ExportError, match='no release with version 1'):
    _rollback(target, 1)


def test_the_content_of_a_rollback_stays(target, candidates):
  """The newest two versions have the same."""
  for i in (0, 1, 1):
    _release(target, candidates[i])
  assert _remove_old(target, 2) == []
  assert _rollback(target).rollback_of == 1
  assert _remove_old(target, 2) == [1, 2]


def test_labelled_versions_stay(target, candidates):
  for candidate in candidates:
    _release(target, candidate)
  labels.assign(target, ['cluster_models'], labels.Labels({'stable': 1}))
  assert _remove_old(target, 2) == [2]
  labels.assign(target, ['cluster_models'], labels.Labels())
  assert _remove_old(target, 2) == [1]


def test_numbers_of_removed_versions_are_not_used_again(target, candidates):
  _release(target, candidates[0])
  _release(target, candidates[1])
  for model in releases.MODELS:
    shutil.rmtree(target / model / '2')
  assert _release(target, candidates[2])['cluster_models'].name == '3'


def test_second_writer_is_refused(target, candidates):
  with (
    releases.opened(target),
    pytest.raises(errors.WorkdirBusyError, match='another process'),
  ):
    _release(target, candidates[0])
  _release(target, candidates[0])


def test_a_disk_that_fails_is_no_damaged_history(
  target, candidates, monkeypatch
):
  def refuse(*_):
    raise OSError(errno.ESTALE, 'Stale file handle')

  _release(target, candidates[0])
  monkeypatch.setattr(pathlib.Path, 'read_text', refuse)
  with pytest.raises(OSError, match='Stale'):
    releases.read_history(target)


def test_damaged_history(target, candidates):
  _release(target, candidates[0])
  path = target / releases.HISTORY_FILE
  path.write_text(path.read_text()[:-9])
  with pytest.raises(errors.ExportError, match='releases.jsonl is damaged'):
    _release(target, candidates[1])


def test_a_history_without_the_origin_of_a_rollback_is_damaged(
  target, candidates
):
  for candidate in candidates[:3]:
    _release(target, candidate)
  _rollback(target)
  path = target / releases.HISTORY_FILE
  first, _, *others = path.read_text().splitlines()
  path.write_text('\n'.join([first, *others]) + '\n')
  with pytest.raises(
    errors.ExportError, match=r'damaged: it lacks the versions \[2\] of roll'
  ):
    releases.read_history(target)


def test_path_that_is_a_file(tmp_path):
  path = tmp_path / 'file'
  path.write_text('')
  with pytest.raises(errors.UserError, match='is a file, where a folder'):  # noqa: SIM117
    with releases.opened(path):
      pass


def test_interrupt_right_after_the_commit_releases_all(
  target, candidates, monkeypatch
):
  commit = releases.ExportPath._commit

  def interrupt(self, entry):
    commit(self, entry)
    self.history = self.history[:-1]
    raise KeyboardInterrupt

  monkeypatch.setattr(releases.ExportPath, '_commit', interrupt)
  with pytest.raises(KeyboardInterrupt):
    _release(target, candidates[0])
  assert _content(target) == _expected(1, 0)


def test_failure_leaves_nothing(target, candidates, monkeypatch):
  _release(target, candidates[0])
  before = saved_run.files(target)

  def fail(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(releases.ExportPath, '_commit', fail)
  with pytest.raises(KeyboardInterrupt):
    _release(target, candidates[1])
  assert saved_run.files(target) == before


def _check_whole(target, old, new):
  """Checks that an opened path shows one of two contents, and no rest."""
  releases.repair(target)
  found = _content(target)
  assert found in (old, new)
  history = releases.read_history(target)
  assert [one.version for one in history] == list(range(1, 1 + len(history)))
  if found:
    assert history[-1].version == found['cluster_models'][0]
    assert releases.read_lineage(target, history[-1].version)
  names = [path.name for path in target.rglob('*')]
  assert not [name for name in names if name.startswith('.')]
  for bundle in releases.current_bundles(target).values():
    manifest.verify_files(bundle)
  return found


@pytest.mark.parametrize('change', ['release', 'rollback'])
def test_power_loss_at_any_moment(target, candidates, change):
  """Afterwards both models are of the old release, or both of the new one."""
  _release(target, candidates[0])
  _release(target, candidates[1])
  old, new = _expected(2, 1), _expected(3, 2 if change == 'release' else 0)
  seen = []

  def recover(place, is_finished):
    seen.append(_check_whole(place, old, new) == new)
    assert seen[-1] or not is_finished
    if change == 'rollback' and not seen[-1]:
      _rollback(place)
      assert _content(place) == new

  def act():
    if change == 'release':
      _release(target, candidates[2])
    else:
      _rollback(target)

  power_loss.check(target, act, recover)
  assert {*seen} == {True, False}


def test_rollback_that_was_killed_is_completed_and_not_repeated(
  target, candidates, monkeypatch
):
  for candidate in candidates[:3]:
    _release(target, candidate)

  class Killed(BaseException):
    pass

  def kill(*_):
    raise Killed

  with monkeypatch.context() as patched:
    patched.setattr(releases.durable, 'publish', kill)
    with pytest.raises(Killed):
      _rollback(target)
  assert _content(target) == _expected(3, 2)
  assert _rollback(target).version == 4
  assert _content(target) == _expected(4, 1)


def test_server_follows_rollback_and_retention(target, tmp_path):
  exportable.write_all(tmp_path / 'a')
  bundles = {model: tmp_path / 'a' / model / '1' for model in releases.MODELS}
  shutil.copytree(tmp_path / 'a', tmp_path / 'b')
  others = {model: tmp_path / 'b' / model / '1' for model in releases.MODELS}
  for folder in others.values():
    path = folder / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE
    path.write_text(path.read_text() + '\n')
  store = models.ModelStore(target)
  for _ in range(3):
    _release(target, bundles)
    served = store.get('cluster_models')
  assert served.version == 3
  _remove_old(target, 2)
  # What is loaded goes on, and what has gone is not found.
  assert store.get('cluster_models') is served
  with pytest.raises(errors.RequestError, match='no version 1; it has 2, 3'):
    store.get('cluster_models', 1)
  _release(target, others)
  _rollback(target, 2)
  assert store.get('cluster_models').version == 5
  assert sorted(store.names()) == sorted(releases.MODELS)
  line = (target / releases.HISTORY_FILE).read_text().splitlines()[-1]
  assert json.loads(line)['rollback_of'] == 2
