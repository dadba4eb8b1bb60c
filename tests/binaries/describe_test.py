"""Names and options of configs as a program."""


def test_options_of_what_is_named_and_one_line_for_a_mistake(launcher):
  program = launcher.run(
    'binaries.describe', '--algorithm=pfedkm', '--partition=dirichlet'
  )
  assert program.returncode == 0, program.stderr
  algorithm, partition = program.stdout.split('\n\n')
  assert algorithm.startswith('algorithm pfedkm: pFedKM: ')
  assert '\n  --config.algorithm.num_clusters: ' in algorithm
  assert '--config.dataset.partition.options.concentration: ' in partition
  program = launcher.run('binaries.describe', '--algorithm=fedsoft')
  assert program.returncode == 1
  (line,) = program.complaints
  assert "got 'fedsoft'" in line
