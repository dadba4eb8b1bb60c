"""Cards of datasets, as a program."""

import pytest

from binaries import card, preprocess
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  preprocess.preprocess(raw_data.digits_config(), folder)
  card.write_card(folder)
  return folder


def _card(workdir):
  (path,) = workdir.glob(f'dataset/versions/*/{layout.CARD}')
  return path


def test_the_program_changes_nothing_that_is_there(workdir, launcher):
  before = {path: path.stat().st_mtime_ns for path in workdir.rglob('*')}
  program = launcher.run('binaries.card', f'--workdir={workdir}')
  assert program.returncode == 0, program.stderr
  assert str(_card(workdir)) in program.stderr
  files = {path for path in before if path.is_file()}
  assert all(path.stat().st_mtime_ns == before[path] for path in files)
  assert set(workdir.rglob('*')) == set(before)
  assert not program.temporary_files() and not program.processes()


@pytest.mark.parametrize('name', [layout.CARD, layout.STATISTICS])
def test_what_is_missing_is_made_again_with_the_same_bytes(workdir, name):
  before = raw_data.file_bytes(workdir)
  _card(workdir).with_name(name).unlink()
  card.write_card(workdir)
  assert raw_data.file_bytes(workdir) == before


def test_a_card_of_other_statistics_is_drawn_again(workdir):
  before = raw_data.file_bytes(workdir)
  _card(workdir).write_text('<!-- card 0 of statistics 123 -->')
  card.write_card(workdir)
  assert raw_data.file_bytes(workdir) == before


def test_force_makes_it_again_with_the_same_bytes(workdir):
  before = raw_data.file_bytes(workdir)
  inode = _card(workdir).stat().st_ino
  card.write_card(workdir, force=True)
  assert raw_data.file_bytes(workdir) == before
  assert _card(workdir).stat().st_ino != inode


def test_the_dataset_stays_as_it_was(workdir):
  dataset_lib.FederatedDataset.open(workdir / 'dataset').close()


def test_a_version_that_is_not_the_current_one(tmp_path):
  preprocess.preprocess(raw_data.digits_config(), tmp_path)
  version = (tmp_path / 'dataset' / layout.CURRENT).read_text().strip()
  preprocess.preprocess(raw_data.digits_config(seed=4), tmp_path)
  path = card.write_card(tmp_path, version=version)
  assert path.parent.name == version
  assert version in path.read_text()
  assert _card(tmp_path) == path  # There is no other.


def test_no_dataset(tmp_path):
  with pytest.raises(errors.DataError, match='Make one with binaries.preproc'):
    card.write_card(tmp_path)
  assert not list(tmp_path.iterdir())
