"""The commands of all pages name configs, options, axes and targets that exist.

`printed_commands_test.py` runs those in code blocks, `data_engineering_test.py` those
of its page; `tests/binaries/command_test.py` compares all flags with the programs'.
"""

import json
import re
import shlex
import sys

import pytest
from absl import flags
from ml_collections import config_flags

from pipelines.engines import runner
from tests.testing import programs
from tff_algos.core import plugins
from tff_algos.experiments import config_file, experiment
from tff_algos.experiments.sweeps import comparison, grid, ranges, search
from tff_algos.reports.sweep import plan

_PAGES = [
  *(programs.ROOT / 'docs').glob('**/*.md'),
  *(programs.ROOT / name for name in ('README.md', 'CONTRIBUTING.md')),
  programs.ROOT / 'benchmarks' / 'README.md',
]
# A line, and those that a backslash joins to it.
_COMMAND = re.compile(r'-m binaries\.(\w+)((?: (?:[^\n`\\]|\\.|\\\n)*)?)')
# Of a line of its own, or the first value of a loop.
_VARIABLE = re.compile(r'^(?:for )?(\w+)(?:=| in )([\w.:/]+)(?:$| )', re.M)
_MAKE = re.compile(r'^ *make ([a-z-]+)((?: [A-Z_]+=\S+)*)', re.M)


def _with_values(page):
  """Replaces the shell variables that the page itself sets."""
  values = dict(_VARIABLE.findall(page))
  return re.sub(
    r'\$\{?(\w+)\}?', lambda name: values.get(name[1], name[0]), page
  )


# A config file that the page itself has written, of data that are not here:
# `own_data_test.py`.
_WRITTEN = re.compile(r'--config=(?:data/air\.py|runs/own_arrays/)')


def _commands():
  """Returns (page, program, its arguments) of all commands, each once."""
  found = {}
  for page in sorted(_PAGES):
    for program, text in _COMMAND.findall(_with_values(page.read_text())):
      words = []
      for word in shlex.split(text.replace('\\\n', ' ')):
        if word.startswith(('>', '2>', '&', '|')):
          break
        words.append(word)
      found[f'{page.name}:{program} {" ".join(words)}'] = (program, words)
  return found


_COMMANDS = _commands()


def _given(flag, words):
  """Returns the values of a flag among the words of a command."""
  start = f'--{flag}='
  return [word.removeprefix(start) for word in words if word.startswith(start)]


def test_there_are_commands():
  assert len(_COMMANDS) >= 30
  assert {'preprocess', 'train', 'sweep', 'serve', 'score'} <= {
    program for program, _ in _COMMANDS.values()
  }


@pytest.mark.parametrize(
  'command',
  [c for c in _COMMANDS if '--config=' in c and not _WRITTEN.search(c)],
)
def test_configs_and_their_options_exist(command, monkeypatch, kept_registries):
  monkeypatch.chdir(programs.ROOT)
  program, words = _COMMANDS[command]
  for names in _given('plugins', words):
    plugins.load(names.split(','))
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values)
  argv = ['program', *(w for w in words if re.match(r'--config[.=]', w))]
  monkeypatch.setattr(sys, 'argv', argv)  # There ml_collections looks for keys.
  values(argv)
  experiment.parse(values.config)
  for options in _given('beam_options', words):
    runner.check_flags(runner.split_flags(options))
  if program == 'sweep':
    files = config_file.bases(
      values.config.to_dict(),
      config_flags.get_config_filename(values['config']),
      [file for also in _given('also', words) for file in also.split(',')],
      config_flags.get_override_values(values['config']),
    )
    runs = grid.expand(
      files,
      _given('grid', words),
      num_seeds=1,
      fixed_dataset='--fixed_dataset' in words,
    )
    for key in _given('choose', words):
      comparison.check(runs, plan.Question(key))


def test_search_of_the_page_can_be_made(monkeypatch, tmp_path):
  monkeypatch.chdir(programs.ROOT)
  (words,) = [w for _, w in _COMMANDS.values() if '--search=optuna' in w]
  page = (programs.ROOT / 'docs/sweeps.md').read_text()
  (text,) = re.findall(r'^```json\n(.*?)^```', page, re.M | re.S)
  path = tmp_path / 'ranges.json'
  path.write_text(text)
  (config,) = _given('config', words)
  base = config_file.load(config).to_dict()
  found = ranges.read(str(path), base)
  assert len(found) == len(json.loads(text)) == 3
  search.check(search.Options(base, found, 20, 1))


def test_targets_and_settings_of_make_exist():
  makefile = (programs.ROOT / 'Makefile').read_text()
  found = [one for page in _PAGES for one in _MAKE.findall(page.read_text())]
  assert len(found) >= 20
  for target, settings in found:
    assert re.search(rf'^{target}:', makefile, re.M), target
    for name in re.findall(r'([A-Z_]+)=', settings):
      # pip reads its settings from the environment.
      assert f'$({name})' in makefile or name.startswith('PIP_'), name
