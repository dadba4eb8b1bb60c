"""Labels of versions: what is written is read, and damage is refused."""

import errno
import json
import pathlib
import shutil

import pytest

from tff_algos.core import durable, errors, folder_lock
from tff_algos.export import labels

CANARY = labels.Labels({'stable': 1, 'canary': 2}, 0.25)


@pytest.fixture(name='folder')
def make_folder(tmp_path):
  for model, numbers in (('a', (1, 2)), ('b', (2, 7))):
    for number in numbers:
      (tmp_path / model / str(number)).mkdir(parents=True)
  return tmp_path


def test_what_is_assigned_is_read(folder):
  assert labels.read(folder) == {}
  labels.assign(folder, ['a'], CANARY)
  labels.assign(folder, ['b'], labels.Labels({'stable': 7}))
  assert labels.read(folder) == {'a': CANARY, 'b': ({'stable': 7}, None)}
  assert json.loads((folder / 'labels.json').read_text()) == {
    'a': {'labels': {'stable': 1, 'canary': 2}, 'canary_share': 0.25},
    'b': {'labels': {'stable': 7}},
  }
  labels.assign(folder, ['a'], labels.Labels())
  assert labels.read(folder) == {'b': ({'stable': 7}, None)}
  assert {path.name for path in folder.iterdir()} == {'a', 'b', 'labels.json'}


@pytest.mark.parametrize(
  ('models', 'given', 'text'),
  [
    (['a', 'b'], CANARY, "'b' has no version 1; it has 2, 7"),
    (['c'], CANARY, "no model 'c'"),
    (['c'], labels.Labels(), "no model 'c'"),
    (['a'], labels.Labels({'': 1}), "label '' of 'a' must have letters"),
    (['a'], labels.Labels({'x/y': 1}), "label 'x/y' of 'a'"),
    (['a'], labels.Labels({'..': 2}), "label '..' of 'a'"),
    (['a'], labels.Labels({'x': 0}), 'a whole number from 1, got 0'),
    (['a'], labels.Labels({'stable': 1}, 0.5), "needs both labels, 'stable'"),
    (['a'], labels.Labels({}, 0.5), "needs both labels, 'stable'"),
    (['a'], CANARY._replace(canary_share=1.5), 'from 0 to 1, got 1.5'),
  ],
)
def test_what_is_not_allowed_changes_nothing(folder, models, given, text):
  labels.assign(folder, ['a'], labels.Labels({'before': 2}))
  with pytest.raises(errors.ExportError, match=text):
    labels.assign(folder, models, given)
  assert labels.read(folder) == {'a': ({'before': 2}, None)}


@pytest.mark.parametrize(
  ('content', 'text'),
  [
    ('{', 'Expecting'),
    ('[]', 'no JSON object'),
    ('{"a": 3}', "'a' must have an object of 'labels'"),
    ('{"a": {}}', "'labels' of 'a' must be an object"),
    ('{"a": {"labels": {}, "share": 1}}', "'a' must have an object of"),
    ('{"a": {"labels": {"x": true}}}', 'got True'),
    ('{"a": {"labels": {"x": "1"}}}', "got '1'"),
    ('{"a": {"labels": {}, "canary_share": 0.5}}', 'needs both labels'),
    (
      '{"a": {"labels": {"stable": 1, "canary": 1}, "canary_share": NaN}}',
      'from 0 to 1, got nan',
    ),
  ],
)
def test_damaged_files(folder, content, text):
  (folder / 'labels.json').write_text(content)
  with pytest.raises(errors.ExportError, match=text) as error:
    labels.read(folder)
  assert '\n' not in str(error.value)
  with pytest.raises(errors.ExportError, match=text):
    labels.assign(folder, ['a'], CANARY)
  assert (folder / 'labels.json').read_text() == content


def test_labels_of_a_model_that_is_gone_are_removed(folder):
  labels.assign(folder, ['a'], labels.Labels({'before': 2}))
  shutil.rmtree(folder / 'a')
  labels.assign(folder, ['a'], labels.Labels())
  assert not labels.read(folder)


def test_one_process_writes_at_a_time(folder):
  with (
    folder_lock.exclusive(folder, 'busy'),
    pytest.raises(errors.WorkdirBusyError, match='another process'),
  ):
    labels.assign(folder, ['a'], CANARY)
  assert labels.read(folder) == {}


def test_a_disk_that_fails_is_no_damaged_file(folder, monkeypatch):
  def refuse(*_):
    raise OSError(errno.ESTALE, 'Stale file handle')

  monkeypatch.setattr(pathlib.Path, 'read_text', refuse)
  with pytest.raises(OSError, match='Stale'):
    labels.read(folder)


def test_a_full_disk_is_no_bad_input(folder, monkeypatch):
  labels.assign(folder, ['a'], CANARY)

  def refuse(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(durable.os, 'fsync', refuse)
  with pytest.raises(OSError, match='No space') as error:
    labels.assign(folder, ['a'], labels.Labels())
  assert errors.is_of_disk(error.value)
  assert labels.read(folder) == {'a': CANARY}
