"""The suite as a pytest plugin: its tiers, the order of tests, and what they cost.

A test is charged with the CPU time of its process and of the children that the
process waited for, from its set-up to its tear-down; a shared fixture is charged
to the first test that uses it. The causes are told apart by wrapping the function
that each passes through; the rest is eager TensorFlow, graphs that run, NumPy.

`tests/costs.json` holds the seconds of each group of tests as they were recorded
with `--record-costs`, groups of less than a second together. The end of every whole
run is compared with it.
"""

import collections
import contextlib
import datetime
import functools
import gc
import json
import os
import pathlib
import random
import resource
import sys
import threading
import time

import pytest

# All cores have a process. More threads of NumPy and scikit-learn would
# wait for each other; set before they are imported.
for _name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
  os.environ.setdefault(_name, '1')

# Python looks for garbage after so many new objects, by itself after 700. Most of
# them are those of graphs, which stay.
_NEW_OBJECTS = 20_000

# cause -> (module, attribute) that it passes through.
_CAUSES = {
  'tracing': (
    'tensorflow.python.framework.func_graph',
    'func_graph_from_py_func',
  ),
  'lowering to TFF': ('tff_algos.rounds.federated', 'build_federated_phase'),
  'TFF worker starts': (
    'tff_algos.runtimes.tff.local_worker',
    'LocalWorker.start',
  ),
  'Beam pipelines': ('apache_beam.pipeline', 'Pipeline.run'),
  'programs': ('tests.testing.programs', 'Program.wait'),
  'subprocesses': ('subprocess', 'Popen._wait'),
  'sleeps': ('time', 'sleep'),
}
_START = 'imports and collection'
_REST = 'the rest'
# Fixtures that take seconds to make: one process makes them, for all tests.
_SHARED_FIXTURES = {'launcher', 'trained_regressions', 'digits_dataset'}
_SHARED = 'programs and shared runs'
_RECORD = pathlib.Path(__file__).parents[1] / 'costs.json'
_SMALL = 'groups of less than a second'
# A group that grew by so many seconds is named.
_GROWTH_SECONDS = 5.0

_before = (0.0, 0.0)
_stack = None
_rows: list[tuple[str, dict]] = []


class _Meter:
  """Seconds of the main thread by cause; a cause inside another counts alone."""

  def __init__(self):
    self._seconds = collections.defaultdict(lambda: [0.0, 0.0])
    self._elsewhere = 0.0
    self._open: list[str] = []
    self._since = _now()

  @contextlib.contextmanager
  def span(self, cause: str):
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or self._open[-1:] == [cause]:
      yield
      return
    self._charge_open()
    self._open.append(cause)
    try:
      yield
    finally:
      self._charge_open()
      self._open.pop()

  def charge(self, cause: str, cpu_seconds: float) -> None:
    self._seconds[cause][0] += cpu_seconds
    self._elsewhere += cpu_seconds

  def take(self) -> tuple[dict[str, list[float]], float]:
    """Returns what came together since the last call, and forgets it.

    Returns:
      cause -> (CPU, wall) seconds, and the CPU seconds of other processes that
      are in them.
    """
    taken = dict(self._seconds), self._elsewhere
    self._seconds.clear()
    self._elsewhere = 0.0
    return taken

  def _charge_open(self) -> None:
    now = _now()
    if self._open:
      for i in range(2):
        self._seconds[self._open[-1]][i] += now[i] - self._since[i]
    self._since = now


def charge(cause: str, cpu_seconds: float) -> None:
  """Adds the CPU seconds of a process that another process waited for."""
  _meter.charge(cause, cpu_seconds)


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


def _now() -> tuple[float, float]:
  """Returns (CPU, wall) seconds; children count when they were waited for."""
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return (
    time.process_time() + children.ru_utime + children.ru_stime,
    time.perf_counter(),
  )


_meter = _Meter()


def _wrap_loaded() -> None:
  """Wraps what the causes pass through, in the modules loaded by now."""
  for cause, (module, attribute) in _CAUSES.items():
    if module not in sys.modules:
      continue
    *path, name = attribute.split('.')
    owner = functools.reduce(getattr, path, sys.modules[module])
    function = getattr(owner, name)
    if not hasattr(function, 'cause_of_cost'):
      setattr(owner, name, _wrapped(cause, function))


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


def _wrapped(cause, function):
  @functools.wraps(function)
  def run(*args, **kwargs):
    with _meter.span(cause):
      return function(*args, **kwargs)

  run.cause_of_cost = cause
  return run


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
  cpu, _ = _now()
  _rows.append((_START, {'cpu': cpu, 'causes': {_START: (cpu, 0.0)}}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
  global _before
  _wrap_loaded()
  _forget_stacks()
  _meter.take()
  _before = _now()
  return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
  report = yield
  if call.when == 'teardown':
    causes, elsewhere = _meter.take()
    cpu, wall = (now - then for now, then in zip(_now(), _before, strict=True))
    rest = [cpu - sum(own[0] for own in causes.values()) + elsewhere]
    rest.append(wall - sum(own[1] for own in causes.values()))
    row = {'cpu': cpu + elsewhere, 'causes': {**causes, _REST: rest}}
    report.user_properties.append(('costs', (group_of(item), row)))
  return report


def pytest_runtest_logreport(report):
  """Collects the rows where the run is reported, not in a process of xdist."""
  if report.when == 'teardown' and 'PYTEST_XDIST_WORKER' not in os.environ:
    _rows.extend(
      value for key, value in report.user_properties if key == 'costs'
    )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  # A process that died sends none.
  _rows.extend(getattr(node, 'workeroutput', {}).get('costs', ()))


def pytest_sessionfinish(session):
  gc.freeze()  # pytest would search for garbage five times, for its complaints.
  if hasattr(session.config, 'workerinput'):
    session.config.workeroutput['costs'] = _rows


def pytest_terminal_summary(terminalreporter, config):
  """Prints the seconds by cause, and what has grown since they were recorded.

  Only of runs by several processes, which are whole runs.
  """
  if config.getoption('dist', 'no') == 'no':
    return
  causes = collections.Counter()
  walls = collections.Counter()
  groups = collections.Counter()
  for group, row in _rows:
    groups[group] += row['cpu']
    for cause, (cpu, wall) in row['causes'].items():
      causes[cause] += cpu
      walls[cause] += wall
  write = terminalreporter.write_line
  write('')
  write(f'{"cause":24}{"CPU seconds":>12}{"seconds":>12}')
  for cause, cpu in causes.most_common():
    write(f'{cause:24}{cpu:12.1f}{walls[cause]:12.1f}')
  tier = tier_of(config)
  before = recorded(tier)
  seconds = {group: round(cpu, 1) for group, cpu in groups.items()}
  if config.getoption('record_costs'):
    _write_record(tier, seconds, terminalreporter.stats)
  write(
    f'{sum(seconds.values()):.0f} CPU seconds; recorded of the whole tier: '
    f'{sum(before.values()):.0f}'
  )
  for group, cpu in sorted(seconds.items()):
    if cpu > before.get(group, 0.0) + _GROWTH_SECONDS:
      write(f'  grew: {group}: {before.get(group, 0.0):.1f} -> {cpu:.1f}')


def _write_record(tier: str, seconds: dict[str, float], stats) -> None:
  record = json.loads(_RECORD.read_text()) if _RECORD.exists() else {}
  large = {group: cpu for group, cpu in seconds.items() if cpu >= 1}
  large[_SMALL] = round(sum(seconds.values()) - sum(large.values()), 1)
  record[tier] = {
    'date': datetime.date.today().isoformat(),
    **{
      name: len(stats.get(name, [])) for name in ('passed', 'failed', 'error')
    },
    'cpu_seconds': dict(sorted(large.items())),
  }
  _RECORD.write_text(json.dumps(record, indent=1) + '\n')
