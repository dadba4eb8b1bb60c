import sys

import pytest
from absl import flags
from ml_collections import config_flags

from binaries import flag_errors

_CONFIG = """
import ml_collections


def get_config(variant='full'):
  if variant != 'full':
    raise ValueError(f"variant must be 'full', got {variant!r}")
  return ml_collections.ConfigDict({'size': 1, 'model': {'rate': 0.5}})
"""


@pytest.fixture
def parse(tmp_path, monkeypatch):
  """Returns a parser of arguments after --config=<the config above>."""
  path = tmp_path / 'config.py'
  path.write_text(_CONFIG)

  def parse_arguments(*arguments, variant='', content=_CONFIG):
    path.write_text(content)
    values = flags.FlagValues()
    config_flags.DEFINE_config_file('config', flag_values=values)
    flags.DEFINE_integer('round', None, 'A round.', flag_values=values)
    argv = ['program', f'--config={path}{variant}', *arguments]
    monkeypatch.setattr(sys, 'argv', argv)  # It looks for overrides there.
    values(argv)
    values.config.to_dict()

  return parse_arguments


def _words(parse, *arguments, **options) -> str:
  with pytest.raises(Exception) as caught:  # noqa: B017, PT011
    parse(*arguments, **options)
  words = flag_errors.words_of(caught.value)
  assert '\n' not in words and 'Traceback' not in words
  return words


def test_right_arguments_are_parsed(parse):
  parse('--config.size=3', '--config.model.rate=0.25', '--round=2')


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (
      ['--config.sise=3'],
      '--config has no key \'sise\'. Did you mean "size" instead of "sise"?',
    ),
    (
      ['--config.model.ratte=3'],
      '--config has no key \'ratte\'. Did you mean "rate" instead of "ratte"?',
    ),
    (['--config.zzz=3'], "--config has no key 'zzz'."),
    (
      ['--config.size=x'],
      "flag --config.size=x: invalid literal for int() with base 10: 'x'",
    ),
    (
      ['--rounds=3'],
      "Unknown command line flag 'rounds'. Did you mean: round ?",
    ),
    (
      ['--round=x'],
      "flag --round=x: invalid literal for int() with base 10: 'x'",
    ),
  ],
)
def test_wrong_argument_is_one_line(parse, arguments, words):
  assert _words(parse, *arguments) == words


def test_refusal_by_the_config_itself_is_one_line(parse):
  words = _words(parse, variant=':small')
  assert words.endswith("config.py:small: variant must be 'full', got 'small'")


def test_missing_config_file_is_named(parse):
  words = _words(parse, '--config=/no/such/config.py')
  assert words.startswith('--config: ')
  assert '/no/such/config.py' in words and 'No such file' in words


@pytest.mark.parametrize(
  ('content', 'kind'),
  [
    ('def get_config():\n  return 1 + None\n', TypeError),
    ('def get_config():\n  return 1 / 0\n', ZeroDivisionError),
    ('def get_config(:\n', SyntaxError),
  ],
)
def test_bug_in_the_config_file_keeps_its_trace(parse, content, kind):
  with pytest.raises(Exception) as caught:  # noqa: B017, PT011
    parse(content=content)
  if isinstance(caught.value, (ValueError, flags.Error)):
    with pytest.raises(type(caught.value), match=kind.__name__):
      flag_errors.words_of(caught.value)
  else:  # It is not among what `command` asks the words of.
    assert isinstance(caught.value, kind)
