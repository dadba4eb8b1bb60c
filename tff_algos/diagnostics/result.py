"""What a check returns, and how checks are run so that none can do harm."""

import threading
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

Status = Literal['ok', 'warn', 'fail']


class CheckResult(NamedTuple):
  """What one check found.

  Attributes:
    name: What was checked.
    status: `'ok'`; `'warn'`, something is slower or riskier than it could be;
      or `'fail'`, the main job cannot run.
    found: What there is.
    mend: What to do about it; empty if nothing needs to be done.
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
    name: The check's name, if it cannot say so itself.
    check: Returns the result.
    timeout_seconds: A check that takes longer counts as failed, and is left to
      a thread that ends with the program.
  """
  results = []

  def run():
    try:
      results.append(check())
    except Exception as error:  # What is broken must not stop the doctor.
      found = f'{type(error).__name__}: {error}'
      results.append(
        CheckResult(name, 'fail', found, 'Install again: `make clean env`.')
      )

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
  """Returns the results as lines for a person."""
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
  """Returns how many checks ended with each status."""
  statuses = [result.status for result in results]
  return {status: statuses.count(status) for status in ('ok', 'warn', 'fail')}
