"""Lineage as a program, of the version that a run exported."""


def test_chain_is_printed(launcher, finished_run):
  program = launcher.run(
    'binaries.lineage',
    f'--export_dir={finished_run.folder}/export',
    '--version=1',
  )
  assert program.returncode == 0, program.stderr
  lines = program.stdout.splitlines()
  assert lines[:2] == ['version 1', '  gate: not asked']
  assert f'run {finished_run.folder}' in lines
  assert '  round: 3' in lines
  assert any(
    line.startswith('  SHA-256 of sklearn.datasets.load_digits: ')
    for line in lines
  )
  assert not program.complaints


def test_unknown_version(launcher, finished_run):
  program = launcher.run(
    'binaries.lineage',
    f'--export_dir={finished_run.folder}/export',
    '--version=99',
  )
  assert program.returncode == 1
  assert 'no release with version 99' in program.said[-1]
