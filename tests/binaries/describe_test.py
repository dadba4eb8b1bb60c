"""Names, options and rounds of configs as a program."""


def test_options_of_what_is_named_and_one_line_for_a_mistake(launcher):
  program = launcher.run(
    'binaries.describe',
    '--algorithm=pfedkm',
    '--partition=dirichlet',
    '--config=configs/fed_avg/digits.py:smoke',
    '--config.algorithm.cohort_size=5',
  )
  assert program.returncode == 0, program.stderr
  algorithm, partition, states, *_ = program.stdout.split('\n\n')
  assert states.startswith('fed_avg: 24 clients, 1 cluster model\n')
  assert '\nrounds 1-4: train (5 clients)\n' in program.stdout
  assert algorithm.startswith('algorithm pfedkm: pFedKM: ')
  assert '\n  --config.algorithm.num_clusters: ' in algorithm
  assert '--config.dataset.partition.options.concentration: ' in partition
  program = launcher.run('binaries.describe', '--algorithm=fedsoft')
  assert program.returncode == 1
  (line,) = program.complaints
  assert "got 'fedsoft'" in line
  program = launcher.run('binaries.describe', '--workdir=runs/digits')
  assert program.returncode == 1
  (line,) = program.complaints
  assert '--workdir=runs/digits has the dataset' in line
  assert 'give --config' in line and not program.stdout
