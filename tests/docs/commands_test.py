"""The commands of all pages name configs, options and targets that exist.

`printed_commands_test.py` runs those in code blocks, `data_engineering_test.py` those
of its page; `tests/binaries/command_test.py` compares all flags with the programs'.
"""

import re
import shlex
import sys

import pytest
from absl import flags
from ml_collections import config_flags

from pipelines.engines import runner
from tests.testing import programs
from tff_algos.core import plugins
from tff_algos.experiments import experiment

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
  _, words = _COMMANDS[command]
  for word in words:
    if word.startswith('--plugins='):
      plugins.load(word.partition('=')[2].split(','))
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values)
  argv = ['program', *(w for w in words if re.match(r'--config[.=]', w))]
  monkeypatch.setattr(sys, 'argv', argv)  # There ml_collections looks for keys.
  values(argv)
  experiment.parse(values.config)
  for word in words:
    if word.startswith('--beam_options='):
      runner.check_flags(runner.split_flags(word.partition('=')[2]))


def test_targets_and_settings_of_make_exist():
  makefile = (programs.ROOT / 'Makefile').read_text()
  found = [one for page in _PAGES for one in _MAKE.findall(page.read_text())]
  assert len(found) >= 20
  for target, settings in found:
    assert re.search(rf'^{target}:', makefile, re.M), target
    for name in re.findall(r'([A-Z_]+)=', settings):
      # pip reads its settings from the environment.
      assert f'$({name})' in makefile or name.startswith('PIP_'), name
