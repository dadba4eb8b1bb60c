"""A package that is not installed is an error that names its extra."""

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Mapping

import pytest

from tests.testing import programs
from tff_algos.core import errors, extras

# Of packages that those of the extras bring with them.
_INDIRECT = {'distributed', 'h11', 'sqlalchemy'}


def _project() -> dict:
  text = (programs.ROOT / 'pyproject.toml').read_text()
  return tomllib.loads(text)['project']


def _names(requirements) -> set[str]:
  return {re.match(r'[\w-]+', one)[0] for one in requirements}


@functools.cache
def _all_distributions() -> Mapping[str, list[str]]:
  return importlib.metadata.packages_distributions()


def _distributions(package: str) -> set[str]:
  names = _all_distributions().get(package, [package])
  return {name.lower().replace('_', '-') for name in names}


def _imported() -> set[str]:
  """Returns the packages of other people that are imported anywhere."""
  found = set()
  for room in ('binaries', 'configs', 'pipelines', 'tff_algos'):
    for path in (programs.ROOT / room).rglob('*.py'):
      for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
          found.update(one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
          found.add(node.module)
  ours = {'binaries', 'configs', 'pipelines', 'tff_algos'}
  tops = {name.partition('.')[0] for name in found}
  return tops - sys.stdlib_module_names - ours


def test_every_package_of_an_extra_is_known():
  project, known = _project(), set()
  always = _names(project['dependencies'])
  for extra, packages in extras._PACKAGES.items():
    known |= {*packages}
    listed = _names(project['optional-dependencies'][extra])
    for package in {*packages} - _INDIRECT:
      assert listed & _distributions(package), package
  of_the_worker = {'frames', 'jax'}  # It runs in an environment of its own.
  for package in _imported() - known - of_the_worker:
    assert always & _distributions(package), package


@pytest.mark.parametrize(
  ('package', 'words'),
  [
    (
      'apache_beam',
      "package 'apache_beam', .* extra 'pipelines' (.*pipelines]",
    ),
    ('tensorflow', "extra 'train' or 'serving' (pip .*algos[train]'"),
  ],
)
def test_the_extra_of_a_package_is_named(monkeypatch, package, words):
  monkeypatch.setitem(sys.modules, package, None)
  escaped = re.sub(r'[(\[\]]', r'\\\g<0>', words)
  with pytest.raises(errors.UserError, match=escaped), extras.named():
    __import__(package)


def test_a_module_of_no_extra_stays_what_it_is():
  with pytest.raises(ModuleNotFoundError, match='my_module'), extras.named():
    import my_module  # noqa: F401


def test_the_extra_is_named():
  with (
    pytest.raises(
      errors.UserError,
      match=r"A frame needs the package 'no_such_package'.*tff-algos\[notebook",
    ),
    extras.importing('notebook', 'A frame'),
  ):
    import no_such_package  # noqa: F401


def test_other_errors_stay_what_they_are():
  with pytest.raises(ValueError, match='bug'), extras.importing('x', 'y'):
    raise ValueError('bug')
