"""The commands of the documents make the runs that they speak of."""

import argparse
import json
import re
import shlex

import pytest

from tests.testing import programs
from tff_algos.experiments import config_file, config_values
from tff_algos.experiments.sweeps import comparison, grid, ranges, search
from tff_algos.reports.sweep import plan


def _commands(name: str) -> list[list[str]]:
  text = (programs.ROOT / name).read_text()
  found = re.findall(r'python -m binaries\.sweep (.*)', text)
  # The config of own data is made by the commands before.
  return [shlex.split(one) for one in found if 'data/air.py' not in one]


_ALL = [*_commands('docs/sweeps.md'), *_commands('README.md')]
_COMMANDS = [one for one in _ALL if '--search=optuna' not in one]


@pytest.mark.parametrize('arguments', _COMMANDS, ids=range(len(_COMMANDS)))
def test_a_command_makes_twenty_runs(arguments, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  parser = argparse.ArgumentParser()
  for name in ('config', 'workdir', 'also'):
    parser.add_argument(f'--{name}', default='')
  parser.add_argument('--num_seeds', type=int)
  parser.add_argument('--grid', action='append', default=[])
  parser.add_argument('--fixed_dataset', action='store_true')
  parser.add_argument('--choose', default='')
  options, overrides = parser.parse_known_args(arguments)
  also = [one for one in options.also.split(',') if one]
  values = config_file.load(options.config).to_dict()
  for override in overrides:
    key, value = re.fullmatch(r'--config\.([\w.]+)=([\d.]+)', override).groups()
    config_values.assign(values, key, float(value), override)
  found = grid.expand(
    config_file.bases(values, options.config, also, {}),
    options.grid,
    options.num_seeds,
    fixed_dataset=options.fixed_dataset,
  )
  if options.choose:
    comparison.check(found, plan.Question(options.choose))
  assert len(found.configs) == 20
  assert options.workdir


def test_there_are_commands():
  assert len(_COMMANDS) == 5
  assert sum('--choose' in ' '.join(one) for one in _COMMANDS) == 1


def test_the_search_of_the_page_can_be_made(monkeypatch, tmp_path):
  monkeypatch.chdir(programs.ROOT)
  (command,) = [one for one in _ALL if '--search=optuna' in one]
  page = (programs.ROOT / 'docs/sweeps.md').read_text()
  (text,) = re.findall(r'^```json\n(.*?)^```', page, re.M | re.S)
  path = tmp_path / 'ranges.json'
  path.write_text(text)
  (config,) = (one[9:] for one in command if one.startswith('--config='))
  base = config_file.load(config).to_dict()
  found = ranges.read(str(path), base)
  assert len(found) == len(json.loads(text)) == 3
  search.check(search.Options(base, found, 20, 1))
