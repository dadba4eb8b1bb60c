"""A run that is killed after its training, started again, and ends equally."""

import pathlib
import shutil
import signal

import pytest

_CONFIG = 'configs/fed_soft/digits.py:smoke'
# What the steps after the training make.
_MADE = ('evaluation', 'export', 'report')


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


@pytest.fixture(name='undisturbed', scope='module')
def make_undisturbed(launcher, tmp_path_factory):
  """The run: one process trains it, evaluates and exports it."""
  folder = tmp_path_factory.mktemp('undisturbed') / 'run'
  program = _run(launcher, folder)
  assert program.returncode == 0, program.stderr
  return folder


def _content(folder: pathlib.Path) -> dict[str, bytes]:
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for name in (*_MADE, 'checkpoints', 'memberships', 'metrics.csv')
    for path in [folder / name, *(folder / name).rglob('*')]
    if path.is_file()
  }


def _differing(folder: pathlib.Path, undisturbed: pathlib.Path) -> list[str]:
  found, expected = _content(folder), _content(undisturbed)
  return [
    name
    for name in sorted({*found, *expected})
    if found.get(name) != expected.get(name)
  ]


@pytest.fixture(name='go_on')
def make_go_on(launcher, undisturbed, tmp_path):
  """Copies the run without what some steps made, and runs to each place."""

  def go_on(without, places):
    folder = tmp_path / 'run'
    shutil.copytree(undisturbed, folder)
    for name in without:
      shutil.rmtree(folder / name)
    for place in places:
      program = _run(launcher, folder, place.format(folder=folder))
      assert program.returncode == -signal.SIGKILL, (place, program.stderr)
    program = _run(launcher, folder)
    assert program.returncode == 0, program.stderr
    left = [path for path in folder.rglob('.*') if path.name != '.lock']
    assert not left
    return folder

  return go_on


@pytest.mark.verify
@pytest.mark.parametrize(
  ('without', 'places'),
  [
    # The process that trained it was killed between evaluation and export.
    (('export', 'report'), []),
    (('export', 'report'), ['os.mkdir {folder}/export']),
    # Before the evaluation, in its middle and before its summary; while bundles
    # are written, and before they are released.
    (
      _MADE,
      [
        'os.mkdir {folder}/evaluation',
        'open {folder}/evaluation/',
        'summary.json',
        '.writing-1/saved_model.pb',
        'export/releases.jsonl',
      ],
    ),
  ],
)
def test_killed_before_its_release_it_ends_in_the_same_files(
  go_on, undisturbed, without, places
):
  assert not _differing(go_on(without, places), undisturbed)


@pytest.mark.verify
def test_killed_after_its_release_it_releases_the_same_models_again(
  go_on, undisturbed
):
  """While its pictures are published."""
  folder = go_on(_MADE, ['report/index.html'])
  first, second = (
    folder / 'export' / 'personalized_models' / version for version in '12'
  )
  for name in ('saved_model.pb', 'assets.extra/bundle.json'):
    assert (second / name).read_bytes() == (first / name).read_bytes()
  assert not [
    name
    for name in _differing(folder, undisturbed)
    if not name.startswith('export/')
  ]
