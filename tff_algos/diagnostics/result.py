"""Results of checks, and their execution with a time limit."""

import threading
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

REINSTALL = 'Install again: `make clean env`.'

Status = Literal['ok', 'warn', 'fail']


class CheckResult(NamedTuple):
  """Result of one check.

  Attributes:
    name: Name of the check.
    status: `'ok'`; `'warn'`, something is slower or riskier than it could be;
      or `'fail'`, the main job cannot run.
    found: Finding.
    mend: Suggested fix; empty if none is needed.
  """

  name: str
  status: Status
  found: str
  mend: str = ''


def run_check(
  name: str, check: Callable[[], CheckResult], timeout_seconds: float
) -> CheckResult:
  """Runs a check that may fail or hang, and always returns a result.

  Args:
    name: Name of the check, for the result of a failure.
    check: Function that returns the result.
    timeout_seconds: A check that takes longer counts as failed; its daemon
      thread ends with the program.
  """
  results = []

  def run():
    try:
      results.append(check())
    except Exception as error:  # Must not stop the other checks.
      found = f'{type(error).__name__}: {error}'
      results.append(CheckResult(name, 'fail', found, REINSTALL))

  thread = threading.Thread(target=run, daemon=True)
  thread.start()
  thread.join(timeout_seconds)
  if results:
    return results[0]
  return CheckResult(
    name,
    'fail',
    f'no answer within {timeout_seconds:g} s',
    'Is the machine overloaded, or a disk or a mount not responding?',
  )


def to_text(results: list[CheckResult]) -> str:
  """Returns the results as readable text."""
  width = max(len(result.name) for result in results)
  lines = []
  for result in results:
    indent = '\n' + ' ' * (width + 8)
    lines.append(
      f'{result.status:<4}  {result.name:<{width}}  '
      + result.found.strip().replace('\n', indent)
    )
    if result.mend:
      lines[-1] += f'{indent}-> ' + result.mend.replace('\n', indent)
  counts = summary(results)
  lines.append(
    ', '.join(f'{count} {status}' for status, count in counts.items())
  )
  return '\n'.join(lines)


def summary(results: list[CheckResult]) -> Mapping[Status, int]:
  """Returns the number of checks by status."""
  statuses = [result.status for result in results]
  return {status: statuses.count(status) for status in ('ok', 'warn', 'fail')}
