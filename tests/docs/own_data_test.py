"""`docs/own_data.md`: its example in Python, and the table that it downloads."""

import csv
import io
import lzma
import pathlib
import re
import zipfile

import pytest

from docs.examples import beijing_air
from tests.testing import csv_files, programs
from tff_algos.experiments import config_file, datasets, experiment
from tff_algos.experiments.own_data import inspection

_TEXT = (programs.ROOT / 'docs' / 'own_data.md').read_text()
_HEADER = (
  *('No', 'year', 'month', 'day', 'hour', 'PM2.5', 'PM10', 'SO2', 'NO2', 'CO'),
  *('O3', 'TEMP', 'PRES', 'DEWP', 'RAIN', 'wd', 'WSPM', 'station'),
)


def _station(name, shift):
  """Returns a CSV file as UCI has it; the dust is that of the hour."""
  out = io.StringIO()
  writer = csv.writer(out)
  writer.writerow(_HEADER)
  for i in range(240):
    dust = 'NA' if i == 30 else (i + shift) % 100
    date = (2013, 3, 1 + i // 24, i % 24)
    wind = ('NNW', 'E')[i % 2]
    measured = (dust, i % 13, 4, 7, 300, 77, i % 30 - 0.7, 1023, -18.8, 0)
    writer.writerow((i + 1, *date, *measured, wind, 4.4, name))
  return out.getvalue()


def _write_folder(folder):
  for i, name in enumerate(('Dongsi', 'Wanliu')):
    content = lzma.compress(_station(name, shift=i).encode())
    (folder / f'PRSA_Data_{name}.csv.xz').write_bytes(content)
  return folder


def _write_zip(folder):
  """A zip in a zip, with a folder."""
  inner = io.BytesIO()
  with zipfile.ZipFile(inner, 'w') as archive:
    for i, name in enumerate(('Dongsi', 'Wanliu')):
      archive.writestr(f'all/PRSA_Data_{name}.csv', _station(name, shift=i))
  with zipfile.ZipFile(folder / 'air.zip', 'w') as archive:
    archive.writestr('inner.zip', inner.getvalue())
    archive.writestr('readme.txt', 'Air.')
  return folder / 'air.zip'


@pytest.mark.parametrize('write', [_write_folder, _write_zip])
def test_table_of_two_stations(tmp_path, write):
  out = tmp_path / 'out' / 'air.csv'
  # 36 sixth hours have one 24 hours later; of one of them it is not known.
  assert beijing_air.write(write(tmp_path), out) == 2 * 35
  rows = csv_files.read(out)
  assert [row['time'] for row in rows[:3]] == [
    *('2013-03-01T00:00', '2013-03-01T12:00', '2013-03-01T18:00')
  ]
  assert [row['dust'] for row in rows[4:6]] == ['', '36']
  # 24, 36 and 42 hours after the start.
  assert [row['tomorrow'] for row in rows[:3]] == [
    *('good', 'moderate', 'moderate')
  ]
  assert rows[35]['station'] == 'Wanliu'


def test_config_of_the_table_is_guessed_right(tmp_path):
  out = tmp_path / 'air.csv'
  beijing_air.write(_write_folder(tmp_path), out)
  path = tmp_path / 'air.py'
  path.write_text(inspection.propose_file(out, 'inspect'))
  for variant in ('fed_avg', 'ifca', 'ditto'):
    config = experiment.parse(config_file.load(f'{path}:{variant}'))
    assert config.algorithm.name == variant
  options = config.dataset.source.options
  assert options['client_column'] == 'station'
  assert options['label_column'] == 'tomorrow'
  assert options['time_column'] == 'time'
  assert config.dataset.splits.split_by == 'client_time'
  result = datasets.build(config.dataset, tmp_path)
  assert result.manifest['num_clients']['participating'] == 2
  assert result.manifest['counters']['dead_letters'] == 0


def test_example_in_python_runs(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (code,) = [
    block
    for block in re.findall(r'^```python\n(.*?)^```', _TEXT, re.M | re.S)
    if 'import tff_algos' in block
  ]
  exec(compile(code, 'docs/own_data.md', 'exec'), {})
  assert capsys.readouterr().out.startswith('6 clients, classification')
  assert pathlib.Path('runs/own_arrays/checkpoints').exists()
