"""Names of the table in CONTRIBUTING.md: forbidden synonyms are not used."""

import ast
import collections
import re
from collections.abc import Iterator

import pytest

from tests.architecture import source_tree

# file -> forbidden names that it may use, with the reason.
_EXCEPTIONS = {
  # Symbols of theorems, beside their equations.
  'tff_algos/algorithms/fed_soft/bounds.py': {'mu'},
  'tff_algos/experiments/analyses/averages.py': {'w'},
  'tff_algos/experiments/analyses/cmfl_bounds.py': {'mu', 't', 'tau', 'w'},
  'tff_algos/experiments/analyses/pfedkm_bounds.py': {'t'},
  # delta of (epsilon, delta).
  'tff_algos/privacy/accounting.py': {'delta'},
  'tff_algos/privacy/mechanism.py': {'delta'},
  # Sample images of a picture.
  'tff_algos/reports/dataset/samples_plot.py': {'num_samples'},
  # Keys of LEAF's files.
  'pipelines/sources/femnist.py': {'user'},
}


def _forbidden() -> set[str]:
  """Returns the last column of the table."""
  text = source_tree.read('CONTRIBUTING.md')
  rows = re.findall(r'^\|[^|\n]+\|[^|\n]+\|([^|\n]+)\|$', text, re.MULTILINE)
  return {name for cell in rows for name in re.findall(r'`(\w+)`', cell)}


def _names(text: str) -> Iterator[str]:
  """Yields names of parameters, variables, attributes, options and flags."""
  for node in ast.walk(ast.parse(text)):
    match node:
      case ast.arg(arg=name):
        yield name
      case ast.Name(id=name, ctx=ast.Store()):
        yield name
      case ast.Attribute(attr=name, ctx=ast.Store()):
        yield name
      case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
        yield name
      case ast.Call(
        func=ast.Attribute(attr=function),
        args=[ast.Constant(value=str(name)), *_],
      ) if function.startswith('DEFINE_'):
        yield name


def test_no_forbidden_name_is_used():
  forbidden = _forbidden()
  assert {'cid', 'lr', 'K', 'num_samples'} <= forbidden
  found = collections.defaultdict(set)
  for path in source_tree.python_files(*source_tree.SOURCE_ROOMS):
    used = forbidden & {*_names(source_tree.read(path))}
    if used:
      found[path.as_posix()] = used
  assert dict(found) == _EXCEPTIONS


@pytest.mark.parametrize(
  'text',
  [
    'def train(lr): pass',
    'train = lambda *, lr: lr',
    'lr = 0.1',
    'for lr in rates: pass',
    'self.lr = 0.1',
    'class Options:\n  lr: float = 0.1',
    "flags.DEFINE_float('lr', 0.1, 'Rate.')",
  ],
)
def test_names_are_seen_wherever_they_are_introduced(text):
  assert 'lr' in _names(text)
