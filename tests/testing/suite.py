"""The suite as a pytest plugin: the order of tests, and what makes them cheap."""

import collections
import gc
import os
import random
import sys

import pytest

# All cores have a process. More threads of NumPy and scikit-learn would
# wait for each other; set before they are imported.
for _name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
  os.environ.setdefault(_name, '1')

# Python looks for garbage after so many new objects, by itself after 700. Most of
# them are those of graphs, which stay.
_NEW_OBJECTS = 20_000

# Fixtures that take seconds to make: one process makes them, for all tests.
_SHARED_FIXTURES = {'launcher', 'trained_regressions', 'digits_dataset'}
_SHARED = 'programs and shared runs'
# Groups that take long, which processes get first. All others follow in the order
# of their files.
_LONG = (
  _SHARED,
  *('contract of ', 'printed commands', 'tests/benchmarks/', 'tests/contract/'),
  *('tests/end_to_end/', 'tests/theory/', 'tests/tff_algos/serving/'),
  'tests/tff_algos/experiments/production/',
  'tests/tff_algos/experiments/sweeps/',
)

_stack = None


def group_of(item: pytest.Item) -> str:
  """Returns the group whose tests share what is costly: its mark, or the file."""
  mark = item.get_closest_marker('xdist_group')
  return mark.args[0] if mark else item.nodeid.split('::')[0]


def _forget_stacks() -> None:
  """Gives every operation of a graph one and the same Python stack.

  TensorFlow looks it up for its error messages: under the calls of pytest, a sixth
  of the time that it takes to trace a graph.
  """
  tf_stack = sys.modules.get('tensorflow.python.util.tf_stack')
  if tf_stack is not None and tf_stack.extract_stack is not _one_stack:
    global _stack
    _stack = tf_stack.extract_stack()
    tf_stack.extract_stack = _one_stack


def _one_stack(stacklevel: int = 1):
  del stacklevel
  return _stack


def pytest_configure():
  gc.set_threshold(_NEW_OBJECTS)


@pytest.hookimpl(tryfirst=True, optionalhook=True)  # Also without xdist.
def pytest_xdist_auto_num_workers() -> int:
  """Returns one process more than cores: some wait for programs and servers."""
  return len(os.sched_getaffinity(0)) + 1


def pytest_addoption(parser):
  parser.addoption(
    '--shuffle', type=int, metavar='SEED', help='run tests in random order'
  )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Orders the tests.

  For pytest-xdist the groups of `_LONG` come first; with `--shuffle` groups, and the
  tests of each, are in random order. pytest then brings the tests of one
  parametrized fixture together.
  """
  seed = config.getoption('shuffle')
  if seed is not None:
    _shuffle(items, seed)
  # Set in the processes of pytest-xdist, where `dist` is 'no'.
  if not getattr(config.option, 'loadgroup', False):
    return
  _group_files(items)
  if seed is None:
    items.sort(key=lambda item: not group_of(item).startswith(_LONG))


def _group_files(items: list[pytest.Item]) -> None:
  """Marks tests without a group: one a file, one of all with shared fixtures."""
  files = collections.defaultdict(list)
  for item in items:
    if not item.get_closest_marker('xdist_group'):
      files[group_of(item)].append(item)
  for file, tests in files.items():
    used = {name for item in tests for name in item.fixturenames}
    group = _SHARED if used & _SHARED_FIXTURES else file
    for item in tests:
      item.add_marker(pytest.mark.xdist_group(group))


def _shuffle(items: list[pytest.Item], seed: int) -> None:
  generator = random.Random(seed)
  generator.shuffle(items)
  groups = sorted({group_of(item) for item in items})
  place = {group: generator.random() for group in groups}
  items.sort(key=lambda item: place[group_of(item)])


def pytest_runtest_protocol():
  _forget_stacks()


def pytest_sessionfinish():
  gc.freeze()  # pytest would search for garbage five times, for its complaints.
