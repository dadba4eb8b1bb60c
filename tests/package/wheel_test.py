"""The wheel: built without network, unpacked elsewhere, used from elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import tff_algos
from tests.testing import programs

_PACKAGES = ('tff_algos', 'pipelines', 'binaries', 'configs')
_FILES = ('pyproject.toml', 'README.md', 'LICENSE')

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  """Built from a copy: setuptools leaves `build` in the tree, and reads it."""
  source = tmp_path_factory.mktemp('source')
  for name in _PACKAGES:
    ignored = shutil.ignore_patterns('__pycache__')
    shutil.copytree(programs.ROOT / name, source / name, ignore=ignored)
  for name in _FILES:
    shutil.copy(programs.ROOT / name, source)
  subprocess.run(
    [
      *(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps'),
      *('--no-index', '--no-build-isolation', '--wheel-dir', 'out', '.'),
    ],
    cwd=source,
    check=True,
  )
  (built,) = (source / 'out').iterdir()
  return built


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
  """A folder `site-packages` that holds the wheel alone."""
  folder = tmp_path_factory.mktemp('installed') / 'site-packages'
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder)
  return folder


def _run(installed, folder, *arguments: str) -> subprocess.CompletedProcess:
  done = subprocess.run(
    [sys.executable, *arguments],
    cwd=folder,
    env={**os.environ, 'PYTHONPATH': str(installed)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return done


def test_it_holds_all_of_the_packages_and_nothing_else(wheel):
  expected = {
    path.relative_to(programs.ROOT).as_posix()
    for name in _PACKAGES
    for path in (programs.ROOT / name).rglob('*')
    if path.is_file()
    and path.name != 'BUILD'
    and path.parent.name != '__pycache__'
  }
  with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
  found = {name for name in names if '.dist-info/' not in name}
  assert found == expected
  assert any(name.endswith('licenses/LICENSE') for name in names)
  assert f'-{tff_algos.__version__}-' in wheel.name


def test_it_is_imported_from_elsewhere(installed, tmp_path):
  code = 'import tff_algos; print(tff_algos.__file__, tff_algos.__version__)'
  done = _run(installed, tmp_path, '-c', code)
  assert done.stdout.split() == [
    str(installed / 'tff_algos' / '__init__.py'),
    tff_algos.__version__,
  ]


@pytest.mark.verify
def test_programs_run_from_elsewhere_with_its_configs(installed, tmp_path):
  """The dataset's card is drawn from a template of the wheel."""
  done = _run(
    installed,
    tmp_path,
    *('-m', 'binaries', 'preprocess', '--workdir=run'),
    '--config=configs/fed_soft/digits.py:smoke',
  )
  version = json.loads(done.stdout)['version']
  assert (tmp_path / f'run/dataset/versions/{version}/card.html').is_file()
  assert 'Card: ' in done.stderr  # Our own words are logged.
