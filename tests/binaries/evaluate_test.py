"""Evaluation as a program."""


def test_the_program_prints_the_summary(launcher, finished_run):
  program = launcher.run(
    'binaries.evaluate',
    '--config=configs/fed_soft/digits.py:smoke',
    f'--workdir={finished_run.folder}',
    '--round=3',
    '--clock=training=0.2',
  )
  assert program.returncode == 0, program.stderr
  assert 'best cluster on held-out upright' in program.stdout
  assert not program.complaints
  index = f'{finished_run.folder}/report/index.html'
  assert program.said[-1].endswith(f'Report: {index}')
  assert not program.temporary_files() and not program.processes()
