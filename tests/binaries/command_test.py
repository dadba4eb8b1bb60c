"""Every binary's way to end, as a person sees it."""

import ast
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from binaries import __main__ as tff_algos_program
from binaries import command
from tests.testing import patience, programs
from tff_algos.core import errors
from tff_algos.serving import server_config

_DIGITS = '--config=configs/fed_soft/digits.py'


def _end(launcher, ending):
  return launcher.run('tests.testing.small_program', ENDING=ending)


@pytest.mark.parametrize(
  ('ending', 'returncode', 'words'),
  [
    ('user_error', 1, 'no such thing; take another'),
    ('busy', 75, 'another run is at work; wait for it'),
    ('not_approved', 3, 'accuracy fell by 9 points; look at gate.json'),
    ('missing_extra', 1, "install the extra 'pipelines'"),
    ('full_disk', 75, "No space left on device: 'config.json'"),
  ],
)
def test_what_a_person_can_mend_is_one_line(
  launcher, ending, returncode, words
):
  program = _end(launcher, ending)
  assert program.returncode == returncode
  (line,) = program.complaints
  assert words in line


def test_reader_that_has_seen_enough_is_no_mistake(launcher):
  program = _end(launcher, 'print_to_nobody')
  assert program.returncode == 0
  assert not program.complaints


@pytest.mark.parametrize('ending', ['bug', 'missing_file'])
def test_bug_keeps_its_trace(launcher, ending):
  program = _end(launcher, ending)
  assert program.returncode == 1
  assert 'Traceback' in program.stderr
  assert 'small_program.py' in program.stderr


@pytest.mark.parametrize(
  ('signum', 'returncode', 'words'),
  [(signal.SIGINT, 130, ['Interrupted.']), (signal.SIGTERM, 143, [])],
)
def test_signal_ends_it_with_all_cleaned_up(
  launcher, signum, returncode, words
):
  program = launcher.start('tests.testing.small_program', ENDING='wait')
  patience.until(lambda: program.stdout, alive=[program])
  program.send_signal(signum)
  assert program.wait().returncode == returncode
  assert program.stdout.splitlines() == ['ready', 'cleaned up']
  assert [line.rpartition('] ')[2] for line in program.said] == words


def test_ctrl_c_before_the_program_runs_needs_no_trace(launcher):
  program = _end(launcher, 'ctrl_c_while_importing')
  assert program.returncode in (130, -signal.SIGINT)
  assert program.said == ['Interrupted.']


@pytest.mark.parametrize(
  ('ending', 'returncode', 'words'),
  [('swallow_ctrl_c', 130, ['Interrupted.']), ('swallow_sigterm', 143, [])],
)
def test_signal_that_a_callback_swallowed_comes_again(
  launcher, ending, returncode, words
):
  program = _end(launcher, ending)
  assert program.returncode == returncode
  assert not program.stdout
  assert [line.rpartition('] ')[2] for line in program.said] == words


def test_results_go_to_stdout_and_words_to_stderr(launcher):
  program = _end(launcher, 'talk')
  assert program.returncode == 0
  assert program.stdout == 'the result\n'
  assert [line.rpartition('] ')[2] for line in program.said] == [
    'our own words',
    'our own warning',
  ]


def _documented_flags() -> dict[str, set[str]]:
  """Returns program -> flags of its commands in documents and docstrings."""
  found = {}
  for pattern in ('*.md', 'docs/**/*.md', 'configs/**/*.py', 'binaries/*.py'):
    for path in programs.ROOT.glob(pattern):
      text = re.sub(r'\\\n\s*', ' ', path.read_text())
      for name, rest in re.findall(
        r'(?:binaries\.|tff-algos )(\w+)((?:(?!binaries\.)[^\n`])*)', text
      ):
        # Not the options of another library, in a flag's quoted value.
        own = re.sub(r"""'[^']*'|"[^"]*\"""", '', rest)
        found.setdefault(name, set()).update(re.findall(r' --(\w+)', own))
  return found


_DOCUMENTED = _documented_flags()
_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
_PROGRAMS = [*tff_algos_program.programs()]


def test_commands_of_the_documents_are_found():
  assert {'config', 'workdir', 'num_seeds', 'grid'} <= _DOCUMENTED['sweep']
  assert {'model', 'instances'} <= _DOCUMENTED['predict']


@pytest.mark.parametrize('name', _PROGRAMS)
def test_help_is_the_docstring_and_the_flags_of_the_program(launcher, name):
  program = launcher.run(f'binaries.{name}', '--help')
  assert program.returncode == 1
  docstring, shown, _ = re.fullmatch(
    r'(.*)\n(?:Flags:|flags:\n\n.*?:)\n(.*)\n\n(.*)\n',
    program.stdout,
    re.DOTALL,
  ).groups()
  listed = re.findall(r'^  --(?:\[no\])?(\w+):', shown, re.MULTILINE)
  listed += [
    f'no{name}'
    for name in re.findall(r'^  --\[no\](\w+):', shown, re.MULTILINE)
  ]
  assert not {'help', 'helpfull', 'alsologtostderr', 'pdb'} & {*listed}
  source = (programs.ROOT / 'binaries' / f'{name}.py').read_text()
  assert ast.get_docstring(ast.parse(source)) in docstring
  defined = re.findall(r"DEFINE_\w+\(\s*'(\w+)'", source)
  expected = {*defined, *_DOCUMENTED.get(name, ())}
  if 'comparison_flags.define()' in source:
    expected |= {'choose', 'choose_by', 'clock', 'metrics', 'target'}
  if name == 'serve':
    expected |= {*server_config.ServerConfig._fields}
  if name == 'score':
    expected |= {'split', 'group', 'personalized', 'otherwise', 'pick_split'}
  if 'define_experiment_flags()' in source:
    expected |= {'config', 'workdir'}
    assert '--config.algorithm.num_clusters=4' in shown
    assert f'python -m binaries.{name} ' in docstring
  assert expected <= {*listed}


@pytest.mark.parametrize(('given', 'level'), [({}, '3'), ({_LEVEL: '0'}, '0')])
def test_tensorflow_is_silent_unless_the_user_has_a_say(given, level):
  program = subprocess.run(
    [
      sys.executable,
      '-c',
      f'import os; from binaries import command; print(os.environ["{_LEVEL}"])',
    ],
    env={name: value for name, value in os.environ.items() if name != _LEVEL}
    | given,
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  assert program.stdout == f'{level}\n'


def test_flags_are_checked_before_tensorflow_is_imported():
  """In one process: each program is a fork without imports of its own."""
  code = """
import os, runpy, sys
from binaries import comparison_flags
large = {'apache_beam', 'matplotlib', 'scipy', 'sklearn', 'tensorflow'}
for name in sys.argv[1:]:
  pid = os.fork()
  if not pid:
    sys.argv = [name, '--workdri=x', '--config=configs/fed_soft/digits.py']
    try:
      runpy.run_module(f'binaries.{name}', run_name='__main__')
    except SystemExit:
      os._exit(2 if large & {*sys.modules} else 0)
    os._exit(1)
  _, status = os.waitpid(pid, 0)
  if status:
    sys.exit(f'{name}: {status}')
"""
  program = subprocess.run(
    [sys.executable, '-c', code, *_PROGRAMS],
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
  )
  assert program.returncode == 0, program.stderr
  assert program.stderr.count("Unknown command line flag 'workdri'") == len(
    _PROGRAMS
  )


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (
      [f'{_DIGITS}:smoke', '--config.algorithm.num_cluster=3'],
      "config.algorithm has no key 'num_cluster'; did you mean 'num_clusters'?",
    ),
    (
      [f'{_DIGITS}:smoke', '--config.seed=x'],
      "flag --config.seed=x: invalid literal for int() with base 10: 'x'",
    ),
    (
      [f'{_DIGITS}:smoke', '--config.algorithm.num_clusters=0'],
      'num_clusters must be an integer >= 1, got 0',
    ),
    ([f'{_DIGITS}:small'], "variant must be one of full, smoke, got 'small'"),
    (['--config=configs/none.py'], "there is no file 'configs/none.py'"),
    ([f'{_DIGITS}:smoke', '--worddir=x'], 'Did you mean: workdir ?'),
    ([f'{_DIGITS}:smoke', 'stray'], 'unknown arguments: stray; see --help'),
    ([f'{_DIGITS}:smoke'], 'no federated dataset at '),
  ],
)
def test_wrong_command_line_is_one_line_and_touches_nothing(
  launcher, tmp_path, arguments, words
):
  program = launcher.run('binaries.train', *arguments, f'--workdir={tmp_path}')
  assert program.returncode == 1
  (line,) = program.complaints
  assert words in line
  assert not program.stdout
  assert not list(tmp_path.iterdir())
  assert not program.temporary_files()


_CONFIG = """
import ml_collections


def get_config(variant='full'):
  if variant != 'full':
    raise ValueError(f"variant must be 'full', got {variant!r}")
  return ml_collections.ConfigDict({
    'size': 1, 'model': {'rate': 0.5, 'rates': (1, 2)}
  })
"""


def _check(path, *arguments, content=_CONFIG, variant=''):
  path.write_text(content)
  command.check_overrides(f'{path}{variant}', ['program', *arguments])


@pytest.mark.parametrize(
  'arguments',
  [[], ['--config.size=3', '--config.model.rate', '1'], ['--config.model={}']],
)
def test_right_overrides_pass(tmp_path, arguments):
  _check(tmp_path / 'config.py', *arguments)


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    ('sise', "config has no key 'sise'; did you mean 'size'? Its keys are: "),
    ('model.ratte=3', "config.model has no key 'ratte'; did you mean 'rate'?"),
    ('modle.rate=3', "config has no key 'modle'; did you mean 'model'?"),
    ('zzz=3', "config has no key 'zzz'. Its keys are: model, size"),
    ('size.x=3', "config.size is no section, so has no key 'x'"),
    ('sizes[0]=3', "config has no key 'sizes'; did you mean 'size'?"),
    (
      'model.rates[0]=3',
      '--config.model.rates[0] sets an element, and a flag sets whole values; '
      'give the whole one, which is now --config.model.rates="(1, 2)"',
    ),
  ],
)
def test_unknown_override_names_the_nearest_key(tmp_path, argument, words):
  with pytest.raises(errors.ConfigError) as caught:
    _check(tmp_path / 'config.py', f'--config.{argument}')
  assert str(caught.value).startswith(words)


def test_config_file_that_lacks_an_extra_is_one_line(launcher, tmp_path):
  path = tmp_path / 'config.py'
  path.write_text("import sys\n\nsys.modules['wandb'] = None\nimport wandb\n")
  program = launcher.run(
    'binaries.preprocess', f'--config={path}', f'--workdir={tmp_path}'
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert "needs the package 'wandb', which is not installed: install" in line
  assert json.loads(program.stdout)['reason'] == 'bad_input'


def test_option_that_the_file_does_not_set_is_told_from_a_typo(tmp_path):
  words = (
    r"config has no key 'runtime'.*config\.runtime\.name is an option that "
    r'.*config\.py does not set: add it there, or start that file from configs'
  )
  with pytest.raises(errors.ConfigError, match=words):
    _check(tmp_path / 'config.py', '--config.runtime.name=debug')


def test_a_variant_that_the_config_refuses_is_named(tmp_path):
  words = "config.py:small: variant must be 'full', got 'small'"
  with pytest.raises(errors.ConfigError, match=words):
    _check(tmp_path / 'config.py', variant=':small')


@pytest.mark.parametrize(
  ('content', 'kind'),
  [
    ('def get_config():\n  return 1 + None\n', TypeError),
    ('def get_config():\n  return 1 / 0\n', ZeroDivisionError),
    ('def get_config(:\n', SyntaxError),
  ],
)
def test_a_bug_in_the_config_file_keeps_its_trace(tmp_path, content, kind):
  with pytest.raises(kind):
    _check(tmp_path / 'config.py', content=content)


def _flip_byte(dataset):
  shard = next((dataset / 'versions').glob('*/train-00000*'))
  content = bytearray(shard.read_bytes())
  content[len(content) // 2] ^= 1
  shard.write_bytes(content)


def _raise_schema_version(dataset):
  manifest = next((dataset / 'versions').glob('*/manifest.json'))
  text = manifest.read_text()
  assert '"schema_version": 1' in text
  manifest.write_text(
    text.replace('"schema_version": 1', '"schema_version": 99')
  )


@pytest.mark.parametrize(
  ('damage', 'arguments', 'words'),
  [
    (_flip_byte, [], 'train-00000-of-00002.array_record is damaged'),
    (_raise_schema_version, [], 'has schema version 99, this code reads'),
    (
      lambda dataset: (dataset / 'CURRENT').unlink(),
      [],
      'is not a published federated dataset',
    ),
    (
      lambda dataset: None,
      ['--config.algorithm.cohort_size_per_cluster=25'],
      'cohort_size_per_cluster is 25, but only 24 of the 24 clients',
    ),
    (
      lambda dataset: None,
      ['--config.model.name=linear_regression'],
      "--config.model=\"{'name': 'linear_regression', ...}\"",
    ),
  ],
)
def test_data_that_cannot_be_trained_on_are_one_line(
  launcher, digits_dataset, tmp_path, damage, arguments, words
):
  shutil.copytree(digits_dataset / 'dataset', tmp_path / 'dataset')
  damage(tmp_path / 'dataset')
  program = launcher.run(
    'binaries.train',
    f'{_DIGITS}:smoke',
    f'--workdir={tmp_path}',
    *arguments,
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert words in line
  assert not (tmp_path / '.lock').exists()
  assert not list(tmp_path.rglob('*writing*'))


@pytest.mark.parametrize(
  ('path', 'is_shown'),
  [
    ('binaries/preprocess.py', True),
    ('pipelines/publishing/versions.py', True),
    ('tff_algos/experiments/training.py', True),
    ('.venv/lib/python3.11/site-packages/absl/app.py', False),
  ],
)
def test_information_of_this_project_alone_is_logged(
  monkeypatch, path, is_shown
):
  """Also if the program is the script of an installed wheel."""
  main = sys.modules['__main__']
  monkeypatch.setattr(main, '__file__', '/usr/bin/tff-algos', raising=False)
  record = logging.LogRecord(
    'absl', logging.INFO, str(programs.ROOT / path), 1, 'text', None, None
  )
  assert command._is_for_the_user(record) == is_shown
