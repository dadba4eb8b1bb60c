"""The suite as a pytest plugin: its tiers, the order of tests, and what they cost.

A test is charged with the CPU time of its process and of the children that the
process waited for, from its set-up to its tear-down; a shared fixture is charged
to the first test that uses it.

`tests/costs.json` holds the seconds of each group of tests as they were recorded
with `--record-costs`, groups of less than a second together. The end of every whole
run is compared with it.
"""

import collections
import datetime
import gc
import json
import os
import pathlib
import random
import resource
import sys
import time

import pytest

# All cores have a process. More threads of NumPy and scikit-learn would
# wait for each other; set before they are imported.
for _name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
  os.environ.setdefault(_name, '1')

# Python looks for garbage after so many new objects, by itself after 700. Most of
# them are those of graphs, which stay.
_NEW_OBJECTS = 20_000

_START = 'imports and collection'
# Fixtures that take seconds to make: one process makes them, for all tests.
_SHARED_FIXTURES = {'launcher', 'trained_regressions', 'digits_dataset'}
_SHARED = 'programs and shared runs'
_RECORD = pathlib.Path(__file__).parents[1] / 'costs.json'
_SMALL = 'groups of less than a second'
# A group that grew by so many seconds is named.
_GROWTH_SECONDS = 5.0

_stack = None
# Of processes that another process than this one waited for.
_elsewhere_seconds = 0.0
# Group of tests -> CPU seconds.
_costs: collections.Counter[str] = collections.Counter()


def charge(cpu_seconds: float) -> None:
  """Adds the CPU seconds of a process that another process waited for."""
  global _elsewhere_seconds
  _elsewhere_seconds += cpu_seconds


def recorded(tier: str) -> dict[str, float]:
  """Returns group of tests -> CPU seconds, as of `tests/costs.json`."""
  if not _RECORD.exists():
    return {}
  return json.loads(_RECORD.read_text()).get(tier, {}).get('cpu_seconds', {})


def group_of(item: pytest.Item) -> str:
  """Returns the group whose tests share what is costly: its mark, or the file."""
  mark = item.get_closest_marker('xdist_group')
  return mark.args[0] if mark else item.nodeid.split('::')[0]


def tier_of(config: pytest.Config) -> str:
  return 'verify' if 'verify' in config.getoption('markexpr') else 'test'


def _cpu_seconds() -> float:
  """Returns CPU seconds up to now; children count when they were waited for."""
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  own = time.process_time() + children.ru_utime + children.ru_stime
  return own + _elsewhere_seconds


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
    '--record-costs',
    action='store_true',
    help='write the CPU seconds of this run into tests/costs.json',
  )
  parser.addoption(
    '--shuffle', type=int, metavar='SEED', help='run tests in random order'
  )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Leaves out the other tier, and orders the rest.

  For pytest-xdist the costliest groups come first; with `--shuffle` groups, and the
  tests of each, are in random order. pytest then brings the tests of one
  parametrized fixture together.
  """
  if tier_of(config) != 'verify':
    tiers = {True: [], False: []}
    for item in items:
      tiers[item.get_closest_marker('verify') is not None].append(item)
    config.hook.pytest_deselected(items=tiers[True])
    items[:] = tiers[False]
  seed = config.getoption('shuffle')
  if seed is not None:
    _shuffle(items, seed)
  # Set in the processes of pytest-xdist, where `dist` is 'no'.
  if not getattr(config.option, 'loadgroup', False):
    return
  _group_files(items)
  if seed is None:
    seconds = recorded(tier_of(config))
    items.sort(key=lambda item: -seconds.get(group_of(item), 0.0))


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


def pytest_collection_finish():
  _costs[_START] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
  _forget_stacks()
  before = _cpu_seconds()
  result = yield
  _costs[group_of(item)] += _cpu_seconds() - before
  return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  # A process that died sends none.
  _costs.update(getattr(node, 'workeroutput', {}).get('costs', {}))


def pytest_sessionfinish(session):
  gc.freeze()  # pytest would search for garbage five times, for its complaints.
  if hasattr(session.config, 'workerinput'):
    session.config.workeroutput['costs'] = dict(_costs)


def pytest_terminal_summary(terminalreporter, config):
  """Prints the CPU seconds, and what has grown since they were recorded.

  Only of runs by several processes, which are whole runs.
  """
  if config.getoption('dist', 'no') == 'no':
    return
  tier = tier_of(config)
  before = recorded(tier)
  if config.getoption('record_costs'):
    _write_record(tier, terminalreporter.stats)
  write = terminalreporter.write_line
  write('')
  write(
    f'{sum(_costs.values()):.0f} CPU seconds; recorded of the whole tier: '
    f'{sum(before.values()):.0f}'
  )
  for group, cpu in sorted(_costs.items()):
    if cpu > before.get(group, 0.0) + _GROWTH_SECONDS:
      write(f'  grew: {group}: {before.get(group, 0.0):.1f} -> {cpu:.1f}')


def _write_record(tier: str, stats) -> None:
  record = json.loads(_RECORD.read_text()) if _RECORD.exists() else {}
  large = {group: round(cpu, 1) for group, cpu in _costs.items() if cpu >= 1}
  large[_SMALL] = round(sum(_costs.values()) - sum(large.values()), 1)
  record[tier] = {
    'date': datetime.date.today().isoformat(),
    **{
      name: len(stats.get(name, [])) for name in ('passed', 'failed', 'error')
    },
    'cpu_seconds': dict(sorted(large.items())),
  }
  _RECORD.write_text(json.dumps(record, indent=1) + '\n')
