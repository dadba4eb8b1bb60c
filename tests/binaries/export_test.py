"""Export of models as a program."""


def test_the_program_says_where(launcher, finished_run):
  program = launcher.run(
    'binaries.export',
    '--config=configs/fed_soft/digits.py:smoke',
    f'--workdir={finished_run.folder}',
    '--client_id=client_00001',
  )
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  folder = f'{finished_run.folder}/export/client_client_00001'
  assert program.said[-1].endswith(f'Exported {folder}/1')
  assert not program.temporary_files() and not program.processes()
