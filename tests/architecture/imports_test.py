"""Who may import whom: the table of docs/architecture.md, checked file by file.

`rooms.py` holds the rules between our own rooms.
"""

import ast
import pathlib
import sys

import pytest

from tests.architecture import rooms, source_tree

# room -> the only packages of other people that it may import. A room that is
# not here may import any but those of `_ONLY_FROM`.
_MAY_IMPORT_PACKAGES = {
  rooms.CORE: {'numpy', 'tensorflow', 'tensorflow_federated', 'grpc'},
  rooms.NUMERICS: {'numpy', 'tensorflow'},
  rooms.MODELS: {'numpy', 'tensorflow'},
  rooms.ROUNDS: {'numpy', 'tensorflow'},
  rooms.STAGES: {'numpy', 'tensorflow'},
  rooms.ADVERSARIES: {'numpy', 'tensorflow'},
  rooms.CONSENSUS: {'absl', 'numpy'},
  rooms.AUDIT: {'absl', 'numpy'},
  rooms.ALGORITHMS: {'numpy', 'tensorflow'},
  rooms.EVALUATION: {'numpy', 'scipy', 'sklearn', 'tensorflow'},
  rooms.EXPORT: {'numpy', 'tensorflow', 'tensorflow_serving'},
  rooms.DIAGNOSTICS: {'psutil'},
  rooms.STORES: {'absl', 'obstore'},
  'tff_algos': set(),
  'configs': {'ml_collections'},
}

# package -> the files or rooms that may import it.
_ONLY_FROM = {
  'tensorflow_federated': {'tff_algos/core/tff_compat.py'},
  'federated_language': {'tff_algos/core/tff_compat.py'},
  'apache_beam': {'pipelines', 'binaries'},
  'absl.flags': {'binaries'},
  'obstore': {'tff_algos/stores/objects.py'},
  'absl.app': {'binaries'},
}

# Of some rooms, another needs to see only these modules.
_ONLY_MODULES = {
  (rooms.NUMERICS, rooms.CORE): {
    'checks',
    'errors',
    'Array',
    'Leaf',
    'Structure',
  },
  (rooms.CONSENSUS, rooms.CORE): {'checks', 'errors', 'seeds'},
  (rooms.CONSENSUS, rooms.ADVERSARIES): {'malicious'},
  (rooms.AUDIT, rooms.CORE): {'durable', 'errors', 'records', 'round_files'},
  (rooms.AUDIT, rooms.CONSENSUS): {'statements'},
  (rooms.REPORTS, rooms.AUDIT): {'audit_log'},
  (rooms.REPORTS, rooms.CORE): {
    *('durable', 'errors', 'folder_lock', 'records', 'sealed_json', 'seeds'),
  },
  (rooms.REPORTS, rooms.EVALUATION): {
    *('association', 'distances', 'drift', 'recovery', 'round_time'),
    'summaries',
  },
  ('pipelines', rooms.EXPORT): {'manifest', 'versions'},
  ('pipelines', rooms.SERVING): {'served_model'},
  # Its subprocess alone imports them, since an import may be what fails.
  (rooms.DIAGNOSTICS, rooms.CORE): set(),
  (rooms.DIAGNOSTICS, rooms.RUNTIMES): set(),
  ('configs', rooms.CORE): {'config'},
  ('configs', rooms.MODELS): {'registry'},
  ('configs', rooms.ALGORITHMS): {'registry'},
  ('configs', rooms.EXPERIMENTS): {'experiment'},
  ('configs', 'pipelines'): {'registry'},
}

# What a pure function may not reach: files, clocks, processes, the world.
_IMPURE = {'time', 'datetime', 'os', 'pathlib', 'random', 'shutil', 'socket'}
_PURE_ROOMS = {
  rooms.NUMERICS,
  rooms.MODELS,
  rooms.ROUNDS,
  rooms.STAGES,
  rooms.ADVERSARIES,
  rooms.ALGORITHMS,
  'configs',
}

_OURS = ('tff_algos', 'pipelines', 'binaries', 'configs', 'tests')


def _imports(text: str) -> set[str]:
  """Returns the dotted names that a file imports, also inside functions."""
  names = set()
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, 'imports are absolute'
      names.update(f'{node.module}.{alias.name}' for alias in node.names)
  return names


def _faults_among_rooms(path: pathlib.PurePath, name: str) -> list[str]:
  room = source_tree.room_of(path)
  target = pathlib.PurePath(*name.split('.'))
  target_room = source_tree.room_of(target)
  if room == target_room:
    # Papers share through stages; what is below a folder is one paper's.
    is_shared = room != rooms.ALGORITHMS or path.stem == 'registry'
    same_paper = len(path.parts) > 3 and path.parts[2] == target.parts[2]
    if is_shared or same_paper:
      return []
    return ['algorithms share through stages']
  if room not in rooms.MAY_IMPORT:
    return [f'{room} is a room without rules: add it to the table']
  if room == 'configs' and path.name != 'base.py':
    return ['of configs, base.py alone may import other rooms']
  if target_room not in rooms.MAY_IMPORT[room]:
    return [f'{room} may not import {target_room}']
  allowed = _ONLY_MODULES.get((room, target_room))
  if allowed is not None and target.name not in allowed:
    return [f'{room} may import of {target_room} only {sorted(allowed)}']
  return []


def _faults_among_packages(path: pathlib.PurePath, name: str) -> list[str]:
  room = source_tree.room_of(path)
  package = name.split('.')[0]
  faults = []
  if package in sys.stdlib_module_names:
    if room in _PURE_ROOMS and package in _IMPURE:
      faults.append(f'{room} is pure and may not import {package}')
  elif package not in _MAY_IMPORT_PACKAGES.get(room, {package}):
    faults.append(f'{room} may not import {package}')
  for owned, owners in _ONLY_FROM.items():
    if f'{name}.'.startswith(f'{owned}.'):
      if not {str(path), room} & owners:
        faults.append(f'only {sorted(owners)} may import {owned}')
  return faults


def _faults(path: pathlib.PurePath, text: str) -> list[str]:
  """Returns what is wrong with the imports of a file, in words."""
  faults = []
  for name in sorted(_imports(text)):
    ours = name.split('.')[0] in _OURS
    check = _faults_among_rooms if ours else _faults_among_packages
    faults.extend(f'{name}: {fault}' for fault in check(path, name))
  return faults


def test_files_import_only_what_their_room_may():
  faults = [
    f'{path}: {fault}'
    for path in source_tree.python_files(*_OURS[:-1])
    for fault in _faults(path, source_tree.read(path))
  ]
  assert not faults, '\n'.join(faults)


@pytest.mark.parametrize(
  ('path', 'text', 'fault'),
  [
    ('tff_algos/core/x.py', 'from tff_algos.data import schema', 'may not'),
    (
      'tff_algos/core/x.py',
      'def f():\n  import tensorflow_federated as tff',
      ': only',
    ),
    (
      'tff_algos/numerics/x.py',
      'from tff_algos.core import algorithm',
      'may import of',
    ),
    ('tff_algos/numerics/x.py', 'import sklearn.cluster', 'may not'),
    (
      'tff_algos/algorithms/x.py',
      'from tff_algos.algorithms import fed_avg',
      'stages',
    ),
    (
      'tff_algos/algorithms/x.py',
      'from tff_algos.runtimes import loop',
      'may not',
    ),
    (
      'tff_algos/algorithms/x.py',
      'from tff_algos.algorithms.ppfl import mixing',
      'stages',
    ),
    (
      'tff_algos/algorithms/a/x.py',
      'from tff_algos.algorithms.b import y',
      'stages',
    ),
    (
      'tff_algos/stages/client/x.py',
      'from tff_algos.algorithms.a import y',
      'may not',
    ),
    ('tff_algos/algorithms/x.py', 'from absl import flags', 'may not'),
    (
      'tff_algos/algorithms/cmfl/consensus/x.py',
      'import tensorflow as tf',
      'may not',
    ),
    ('tff_algos/algorithms/x.py', 'import time', 'pure'),
    (
      'tff_algos/runtimes/x.py',
      'import tff_algos.algorithms.fed_soft',
      'may not',
    ),
    ('tff_algos/runtimes/x.py', 'from absl import flags', ': only'),
    ('tff_algos/data/x.py', 'import apache_beam as beam', ': only'),
    ('pipelines/sources/x.py', 'from tff_algos.rounds import plans', 'may not'),
    (
      'configs/fed_avg/x.py',
      'from tff_algos.core import config',
      'base.py alone',
    ),
    ('configs/base.py', 'from tff_algos.core import errors', 'may import of'),
    ('binaries/x.py', 'from tests.testing import toys', 'may not'),
  ],
)
def test_rule_bites(path, text, fault):
  assert fault in '\n'.join(_faults(pathlib.PurePath(path), text))


@pytest.mark.parametrize(
  ('path', 'text'),
  [
    ('tff_algos/numerics/x.py', 'from tff_algos.core import errors'),
    ('tff_algos/algorithms/registry.py', 'from tff_algos.algorithms import a'),
    ('tff_algos/algorithms/a/x.py', 'from tff_algos.algorithms.a import y'),
    ('tff_algos/runtimes/x.py', 'import time\nfrom absl import logging'),
    ('pipelines/sources/x.py', 'from pipelines.sources import base'),
    ('configs/base.py', 'from tff_algos.models import registry'),
    ('binaries/x.py', 'from absl import flags\nimport tff_algos.export.bundle'),
  ],
)
def test_rule_lets_pass(path, text):
  assert not _faults(pathlib.PurePath(path), text)
