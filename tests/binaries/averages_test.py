"""Averages of few and of many models, as a program."""


def test_the_program_prints_every_tenth_step(launcher, tmp_path):
  program = launcher.run(
    'binaries.averages', f'--workdir={tmp_path / "new"}', '--num_paths=2'
  )
  assert program.returncode == 0, program.stderr
  header, *lines = program.stdout.splitlines()
  assert header.split() == [
    *('step', 'variance_5', 'loss_5', 'variance_25', 'loss_25')
  ]
  assert [line.split()[0] for line in lines] == [
    *('0', '10', '20', '30', '40', '50', '60')
  ]
  assert (tmp_path / 'new' / 'averages.png').is_file()
  assert not program.temporary_files() and not program.processes()
