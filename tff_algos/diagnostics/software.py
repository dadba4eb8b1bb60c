"""Checks of Python, the C library and the installed packages."""

import importlib.metadata
import json
import re
import sys

from tff_algos.diagnostics import programs, result

_OLDEST_GLIBC = (2, 31)

_ASK_TENSORFLOW = """
import json
import tensorflow as tf
gpus = [gpu.name for gpu in tf.config.list_physical_devices('GPU')]
print(json.dumps({'version': tf.__version__, 'gpus': gpus}))
"""

# Prints its current step, so that a hang or a crash can be located.
_ASK_TFF = """
import sys

def say(step):
  print(step, flush=True)
say('importing TFF')
import tensorflow as tf
from tff_algos.core import tff_compat
from tff_algos.runtimes.tff import local_worker
tff_compat.refuse_default_context()
say('building a computation')
number = tff_compat.to_type(tf.TensorSpec([], tf.int32))
@tff_compat.federated_computation(tff_compat.at_clients(number))
def total(numbers):
  return tff_compat.federated_sum(numbers)
say('starting the worker')
with local_worker.LocalWorker() as local:
  say('connecting to the worker')
  with tff_compat.connect(local.address) as channel:
    context = tff_compat.remote_context(channel, local.check_alive)
    say('computing 1 + 2 over two clients')
    with tff_compat.in_context(context):
      answer = total([1, 2])
if answer != 3:
  sys.exit(f'got {answer}')
"""


def check_python(
  version: tuple[int, ...] = sys.version_info[:3], prefix: str = sys.prefix
) -> result.CheckResult:
  """Checks the version of Python."""
  spelled = '.'.join(map(str, version))
  if version[:2] != (3, 11):
    return result.CheckResult(
      'python',
      'fail',
      f'{spelled} in {prefix}',
      'TFF 0.87 needs Python 3.11. Run `make env`, and start programs with '
      '`.venv/bin/python`.',
    )
  return result.CheckResult('python', 'ok', f'{spelled} in {prefix}')


def check_glibc(version: str) -> result.CheckResult:
  """Checks the C library.

  Args:
    version: Such as `'glibc 2.36'`; blank if it is another C library.
  """
  match = re.fullmatch(r'glibc (\d+)\.(\d+).*', version)
  if match and (int(match[1]), int(match[2])) >= _OLDEST_GLIBC:
    return result.CheckResult('glibc', 'ok', version)
  return result.CheckResult(
    'glibc',
    'fail',
    version.strip() or 'none (musl?)',
    "TFF's wheels need glibc 2.31: Debian 11, Ubuntu 20.04 or newer; Alpine "
    'has none.',
  )


def installed_packages() -> dict[str, str]:
  """Returns the installed packages, normalised name -> version."""
  return {
    _normalised(distribution.metadata['Name']): distribution.version
    for distribution in importlib.metadata.distributions()
  }


def check_packages(
  lock: str | None, installed: dict[str, str]
) -> result.CheckResult:
  """Compares the installed packages with the lock.

  Args:
    lock: Content of `requirements.lock`; None if there is none.
    installed: Result of `installed_packages`.
  """
  if lock is None:
    return result.CheckResult(
      'packages',
      'warn',
      'no requirements.lock here',
      'Run this from the root of the checkout.',
    )
  locked = re.findall(r'^([\w.-]+)==([^\s;]+)', lock, re.MULTILINE)
  differing = [
    f'{name} {installed.get(_normalised(name), "missing")}, locked {version}'
    for name, version in locked
    if installed.get(_normalised(name)) != version
  ]
  if differing:
    shown = '\n'.join(differing[:5])
    more = f'\nand {len(differing) - 5} more' if len(differing) > 5 else ''
    return result.CheckResult(
      'packages', 'fail', shown + more, result.REINSTALL
    )
  return result.CheckResult('packages', 'ok', f'{len(locked)} as locked')


def ask_tensorflow(timeout_seconds: float) -> programs.Outcome:
  """Imports TensorFlow in a subprocess."""
  return programs.run([sys.executable, '-c', _ASK_TENSORFLOW], timeout_seconds)


def tensorflow_gpus(answer: programs.Outcome) -> list[str] | None:
  """Returns the GPUs that TensorFlow detects, or None if unknown."""
  if answer.ending != 'ok':
    return None
  return json.loads(answer.output.splitlines()[-1])['gpus']


def check_tensorflow(answer: programs.Outcome) -> result.CheckResult:
  """Checks the result of `ask_tensorflow`."""
  if answer.ending == 'ok':
    version = json.loads(answer.output.splitlines()[-1])['version']
    return result.CheckResult('tensorflow', 'ok', version)
  return result.CheckResult(
    'tensorflow',
    'fail',
    f'import: {answer.ending}\n{answer.last_words}'.strip(),
    result.REINSTALL,
  )


def ask_tff(timeout_seconds: float) -> programs.Outcome:
  """Runs a minimal federated computation in a subprocess."""
  return programs.run([sys.executable, '-c', _ASK_TFF], timeout_seconds)


def check_tff(answer: programs.Outcome) -> result.CheckResult:
  """Checks the result of `ask_tff`."""
  step = answer.output.splitlines()[-1] if answer.output else 'starting'
  if answer.ending == 'ok':
    return result.CheckResult('tff', 'ok', '1 + 2 over two clients = 3')
  return result.CheckResult(
    'tff',
    'fail',
    f'while {step}: {answer.ending}\n{answer.last_words}'.strip(),
    'See the other checks first; if they pass: `make clean env`.',
  )


def _normalised(name: str) -> str:
  return re.sub(r'[-_.]+', '-', name).lower()
