"""The config that raw data suggest, as a program prints it."""

import pathlib

from tests.testing import raw_data
from tff_algos.experiments import config_file, experiment


def test_printed_config_is_one_that_runs(launcher, tmp_path):
  raw_data.write_csv(tmp_path)
  path = tmp_path / 'table.csv'
  path.write_text(path.read_text().replace(',y,', ',the answer,', 1))
  program = launcher.run(
    'binaries.inspect', f'--path={path}', '--label=the answer'
  )
  assert program.returncode == 0, program.stderr
  written = pathlib.Path(tmp_path, 'config.py')
  written.write_text(program.stdout)
  config = experiment.parse(config_file.load(f'{written}:ifca'))
  assert config.dataset.source.options['client_column'] == 'who'
  command = f"python -m binaries.inspect --path={path} '--label=the answer'"
  assert command in program.stdout
  program = launcher.run('binaries.inspect', f'--path={tmp_path}/no.csv')
  assert program.returncode == 1
  (line,) = program.complaints
  assert 'no raw data: there is no file' in line
