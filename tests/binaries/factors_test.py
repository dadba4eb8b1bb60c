"""The variance of a round and latent clients, as a program."""


def test_other_algorithms_are_refused_in_one_line(launcher, tmp_path):
  program = launcher.run(
    'binaries.factors',
    '--config=configs/fed_soft/digits.py:smoke',
    f'--workdir={tmp_path}',
    '--num_repeats=2',
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert "config.algorithm.name is 'fed_soft'" in line
  assert not list(tmp_path.iterdir())
