"""A run that is killed after its training, started again, and ends equally."""

import pathlib
import signal

import pytest

_CONFIG = 'configs/fed_soft/digits.py:smoke'
# Folders and files whose bytes depend on the run alone. Logs of TensorBoard and
# records of programs have times.
_COMPARED = ('checkpoints', 'evaluation', 'export', 'metrics.csv', 'report')


def _run(launcher, folder: pathlib.Path, place: str = ''):
  return launcher.run(
    'tests.testing.killed_program',
    f'--config={_CONFIG}',
    f'--workdir={folder}',
    PROGRAM='binaries.run',
    FOLDER=str(folder),
    KILL_AT=place,
    QUICK='1',
  )


def _content(folder: pathlib.Path) -> dict[str, bytes]:
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for name in _COMPARED
    for path in sorted([folder / name, *(folder / name).rglob('*')])
    if path.is_file()
  }


@pytest.fixture(name='undisturbed', scope='module')
def make_undisturbed(launcher, tmp_path_factory):
  folder = tmp_path_factory.mktemp('undisturbed') / 'run'
  program = _run(launcher, folder)
  assert program.returncode == 0, program.stderr
  return _content(folder)


def _run_killed(launcher, folder, places):
  """Runs to each of the places in turn, and then to the end."""
  for place in places:
    program = _run(launcher, folder, place.format(folder=folder))
    assert program.returncode == -signal.SIGKILL, (place, program.stderr)
  program = _run(launcher, folder)
  assert program.returncode == 0, program.stderr
  left = [*folder.glob('.report-*'), *folder.rglob('.writing-*')]
  assert not [*left, *folder.rglob('.unreleased')]


def _differing(found, expected) -> list[str]:
  return [
    name
    for name in sorted({*found, *expected})
    if found.get(name) != expected.get(name)
  ]


@pytest.mark.verify
@pytest.mark.parametrize(
  'places',
  [
    # Between evaluation and export.
    ['os.mkdir {folder}/export'],
    # Before the evaluation, in its middle and before its summary; while bundles
    # are written, and before they are released.
    [
      'os.mkdir {folder}/evaluation',
      'open {folder}/evaluation/',
      'summary.json',
      '.writing-1/saved_model.pb',
      'export/releases.jsonl',
    ],
  ],
)
def test_killed_before_its_release_it_ends_in_the_same_files(
  launcher, undisturbed, places, tmp_path
):
  folder = tmp_path / 'run'
  _run_killed(launcher, folder, places)
  assert not _differing(_content(folder), undisturbed)


@pytest.mark.verify
def test_killed_after_its_release_it_releases_the_same_models_again(
  launcher, undisturbed, tmp_path
):
  """While its pictures are published."""
  folder = tmp_path / 'run'
  _run_killed(launcher, folder, ['report/index.html'])
  found = _content(folder)
  release = 'export/personalized_models'
  for name in ('saved_model.pb', 'assets.extra/bundle.json'):
    assert found[f'{release}/2/{name}'] == found[f'{release}/1/{name}']
  assert not [
    name
    for name in _differing(found, undisturbed)
    if not name.startswith('export/')
  ]
