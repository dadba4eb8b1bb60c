"""The one line on stdout by which a scheduler learns how a build ended."""

import json
from typing import Any

from pipelines import build_dataset
from tff_algos.core import errors


def of_result(
  result: build_dataset.BuildResult, as_of: str | None, seconds: float
) -> str:
  """Returns a JSON object, one line, that says what was published.

  Args:
    result: What the build made.
    as_of: The date that it was made for.
    seconds: How long it took.
  """
  manifest = result.manifest
  counters = manifest['counters']
  return _spell(
    status='unchanged' if result.reused else 'built',
    version=result.version,
    path=str(result.path),
    as_of=as_of,
    is_current=result.is_current,
    num_clients=manifest['num_clients'],
    num_examples={
      split: sum(groups.values())
      for split, groups in manifest['num_examples'].items()
    },
    raw_examples=counters['raw_examples'],
    dead_letters=counters['dead_letters'],
    removed_versions=list(result.removed),
    seconds=round(seconds, 3),
  )


def of_failure(error: Exception, exit_code: int) -> str:
  """Returns a JSON object, one line, that says why nothing was published.

  Args:
    error: A `UserError`, or an `OSError` of the disk.
    exit_code: The program's.
  """
  is_infrastructure = isinstance(error, (errors.InfrastructureError, OSError))
  return _spell(
    status='failed',
    reason='infrastructure' if is_infrastructure else 'bad_input',
    exit_code=exit_code,
    error=type(error).__name__,
    message=str(error),
  )


def _spell(**entries: Any) -> str:
  return json.dumps(entries)
