import errno

import pytest

from tff_algos.core import errors, sealed_json
from tff_algos.runtimes.pjrt import calibration


def test_the_faster_form_is_chosen_and_kept_for_the_kind_of_device(tmp_path):
  path = tmp_path / 'accelerator.json'
  made = calibration.Calibration(str(path), 'H100, jax 1')
  assert made.get('train') is None
  assert made.choose('train', {True: 0.1, False: 0.2})
  assert not made.choose('fit', {True: 0.2, False: 0.1})
  again = calibration.Calibration(str(path), 'H100, jax 1')
  assert (again.get('train'), again.get('fit')) == (True, False)
  other = calibration.Calibration(str(path), 'H100, jax 2')
  assert other.get('train') is None
  other.choose('train', {True: 3.0, False: 2.0})
  assert sealed_json.read(path, '') == {
    'device': 'H100, jax 2',
    'vectorizes': {'train': False},
  }


def test_a_disk_that_refuses_the_file_costs_no_choice(
  tmp_path, monkeypatch, caplog
):
  path = tmp_path / 'accelerator.json'
  made = calibration.Calibration(str(path), 'cpu')

  def refuse(path, content):
    raise PermissionError(errno.EROFS, 'Read-only file system', str(path))

  monkeypatch.setattr(calibration.sealed_json, 'write', refuse)
  with caplog.at_level('WARNING'):
    assert made.choose('train', {True: 0.1, False: 0.2})
  assert made.get('train')
  assert 'accelerator.json cannot be written' in caplog.text
  assert 'measures again' in caplog.text


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  made = calibration.Calibration('', 'cpu')
  assert made.choose('train', {True: 1.0, False: 2.0})
  assert made.get('train')
  assert not list(tmp_path.iterdir())


def test_a_changed_file_is_refused_by_its_name(tmp_path):
  path = tmp_path / 'accelerator.json'
  calibration.Calibration(str(path), 'cpu').choose('fit', {True: 1, False: 2})
  path.write_text(path.read_text().replace('true', 'false'))
  with pytest.raises(errors.DataError, match=r'accelerator\.json.*Remove it'):
    calibration.Calibration(str(path), 'cpu')


def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path):
  path = tmp_path / 'config.json'
  sealed_json.write(path, {'device': 'cpu'})
  with pytest.raises(errors.ConfigError, match=r'config\.json.*name another'):
    calibration.Calibration(str(path), 'cpu')


def test_a_folder_and_a_file_in_none_are_refused(tmp_path):
  with pytest.raises(errors.DataError, match='cannot be read'):
    calibration.Calibration(str(tmp_path), 'cpu')
  path = tmp_path / 'missing' / 'accelerator.json'
  with pytest.raises(errors.ConfigError, match='missing is no folder'):
    calibration.Calibration(str(path), 'cpu')
