"""`import tff_algos`: what it offers, and what importing it costs."""

import ast
import doctest
import importlib
import json
import subprocess
import sys

import pytest

import tff_algos
from tests.testing import programs

_STUB = programs.ROOT / 'tff_algos' / '__init__.pyi'
_HEAVY = {
  *('apache_beam', 'matplotlib', 'matplotlib.pyplot', 'sklearn'),
  *('tensorflow', 'tensorflow_datasets', 'tensorflow_federated'),
  'tensorflow_serving',
}


def test_every_name_is_there():
  for name in tff_algos.__all__:
    assert getattr(tff_algos, name) is not None


def test_no_name_is_also_a_room():
  """Importing the room would put itself in the place of the name."""
  rooms = {path.name for path in (programs.ROOT / 'tff_algos').iterdir()}
  assert not rooms & set(tff_algos.__all__)


def test_other_names_are_refused():
  with pytest.raises(AttributeError, match="no attribute 'trian'"):
    tff_algos.trian  # noqa: B018


def test_the_stub_says_the_same():
  tree = ast.parse(_STUB.read_text())
  stub = {}
  for node in tree.body:
    if isinstance(node, ast.ImportFrom):
      module = importlib.import_module(node.module)
      for alias in node.names:
        stub[alias.asname or alias.name] = getattr(module, alias.name)
  expected = {name: getattr(tff_algos, name) for name in tff_algos._PUBLIC}
  assert stub == expected
  (listed,) = [n.value for n in tree.body if isinstance(n, ast.Assign)]
  assert ast.literal_eval(listed) == tff_algos.__all__


def test_the_example_of_the_docstring_runs(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  result = doctest.testmod(tff_algos, raise_on_error=True)
  assert result.attempted >= 5


# Imported by one process, one row after the other: each costs seconds.
_IMPORTS = {
  'library': [
    (
      set(),
      (
        'tff_algos',
        'tff_algos.data.dataset',
        'tff_algos.experiments.config_file',
      ),
    ),
    ({'tensorflow', 'tensorflow_serving'}, ('tff_algos.serving.server',)),
    (
      {'sklearn', 'tensorflow', 'tensorflow_serving'},
      ('tff_algos.experiments.training',),
    ),
  ],
  'reports': [
    (
      {'matplotlib', 'sklearn'},
      (
        'tff_algos.reports.dataset.card',
        'tff_algos.reports.run.page',
        'tff_algos.reports.run.summary',
        'tff_algos.reports.sweep.sweep_page',
      ),
    )
  ],
  'pipelines': [
    ({'apache_beam'}, ('pipelines.build_dataset',)),
    # Those of `binaries.preprocess`.
    (
      {'apache_beam', 'matplotlib', 'sklearn', 'tensorflow'},
      ('tff_algos.experiments.datasets', 'tff_algos.experiments.experiment'),
    ),
  ],
}
_IMPORT = """
import importlib, json, sys

for row in sys.argv[1:]:
  for name in row.split(','):
    importlib.import_module(name)
  print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope='module', name='imported', params=_IMPORTS)
def make_imported(request):
  """Rows of `_IMPORTS`, each with all modules that are loaded after it."""
  rows = _IMPORTS[request.param]
  done = subprocess.run(
    [sys.executable, '-c', _IMPORT, *(','.join(names) for _, names in rows)],
    cwd=programs.ROOT,
    env={'TF_CPP_MIN_LOG_LEVEL': '3'},
    check=True,
    stdout=subprocess.PIPE,
  )
  loaded = [set(json.loads(line)) for line in done.stdout.splitlines()]
  return list(zip(rows, loaded, strict=True))


def test_imports_need_these_heavy_packages_alone(imported):
  for (heavy, names), loaded in imported:
    assert _HEAVY & loaded == heavy, names


@pytest.mark.parametrize('imported', ['library'], indirect=True)
def test_the_server_needs_no_training_code(imported):
  _, loaded = imported[1]
  training = tuple(
    f'tff_algos.{room}' for room in ('algorithms', 'runtimes', 'stages')
  )
  assert not [name for name in loaded if name.startswith(training)]
