"""The examples in docstrings are run, and print what they say."""

import doctest
import importlib

import pytest

from tests.architecture import source_tree

_WITH_EXAMPLES = [
  path
  for path in source_tree.python_files('tff_algos', 'pipelines')
  # That of the package has a test of its own.
  if '>>> ' in source_tree.read(path) and path.parent.name != 'tff_algos'
]


def test_there_are_examples():
  assert len(_WITH_EXAMPLES) >= 6


@pytest.mark.parametrize(
  'path',
  [
    # Experiments, which `interactive_test` runs, too.
    pytest.param(one, marks=[pytest.mark.verify] * (one.stem == 'interactive'))
    for one in _WITH_EXAMPLES
  ],
  ids=str,
)
def test_examples_print_what_they_say(path):
  module = importlib.import_module('.'.join(path.with_suffix('').parts))
  found = doctest.testmod(module)
  assert found.attempted and not found.failed
