"""Tests of core.structures."""

import ast
import pathlib

from tff_algos.core import structures

_ROOT = pathlib.Path(structures.__file__).parents[2]


def _declares(path: pathlib.Path, name: str) -> bool:
  """Returns whether a file assigns a name at its top level."""
  targets = []
  for node in ast.parse(path.read_text()).body:
    if isinstance(node, ast.AnnAssign):
      targets.append(node.target)
    elif isinstance(node, ast.Assign):
      targets.extend(node.targets)
  return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def test_the_types_are_declared_once():
  paths = [
    path
    for room in ('tff_algos', 'pipelines', 'binaries')
    for path in (_ROOT / room).rglob('*.py')
  ]
  for name in ('Structure', 'Leaf', 'Array'):
    owners = [path for path in paths if _declares(path, name)]
    assert owners == [pathlib.Path(structures.__file__)], name
