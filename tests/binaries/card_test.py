"""Cards of datasets, as a program."""

import pytest

from tests.testing import raw_data
from tff_algos.data import layout
from tff_algos.experiments import datasets


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  datasets.build(raw_data.digits_config(), folder)
  datasets.write_card(folder)
  return folder


def test_the_program_changes_nothing_that_is_there(workdir, launcher):
  before = {path: path.stat().st_mtime_ns for path in workdir.rglob('*')}
  program = launcher.run('binaries.card', f'--workdir={workdir}')
  assert program.returncode == 0, program.stderr
  (path,) = workdir.glob(f'dataset/versions/*/{layout.CARD}')
  assert str(path) in program.stderr
  files = {path for path in before if path.is_file()}
  assert all(path.stat().st_mtime_ns == before[path] for path in files)
  assert set(workdir.rglob('*')) == set(before)
  assert not program.temporary_files() and not program.processes()
