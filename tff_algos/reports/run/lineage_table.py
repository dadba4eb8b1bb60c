"""Table of a run's lineage, from `lineage.json`."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import errors, sealed_json

FILE = 'lineage.json'
_REMEDY = (
  'Remove it; binaries.export without --nogate writes that of a gated run anew.'
)


def read(workdir: pathlib.Path) -> dict[str, Any]:
  """Returns the lineage of a run; empty if it has none.

  Raises:
    DataError: If `lineage.json` is damaged.
  """
  path = workdir / FILE
  return sealed_json.read(path, _REMEDY) if os.path.lexists(path) else {}


def rows(
  workdir: pathlib.Path, run_hash: str | None = None
) -> list[tuple[str, str]]:
  """Returns (name, value) of the lineage; empty if the run has none.

  Args:
    workdir: Folder of the run.
    run_hash: Hash of the run; None if it is not known.

  Raises:
    DataError: If `lineage.json` is damaged or of another run.
  """
  path, content = workdir / FILE, read(workdir)
  if not content:
    return []
  if run_hash and content.get('run_hash') not in (run_hash, None):
    raise errors.DataError(f'{path} is of another run. {_REMEDY}')
  try:
    return [
      *describe(content).items(),
      ('gate', _verdict(content['gate'])),
      *(
        ('released', f'version {release["version"]}')
        for release in content['releases']
      ),
    ]
  except (ValueError, KeyError, TypeError) as error:
    raise errors.DataError(f'{path} is damaged: {error!r}. {_REMEDY}') from None


def describe(content: Mapping[str, Any]) -> dict[str, str]:
  """Returns name -> value of what determines a run's models."""
  dataset, parent = content['dataset'], content['parent']
  return {
    'round': str(content['round_num']),
    'continues': parent['run'] if parent else 'no run',
    'dataset': dataset['version'],
    'as of': dataset['as_of'] or 'no date',
    **{
      f'SHA-256 of {name}': sha256
      for name, sha256 in dataset['raw_files'].items()
    },
    'config': content['config_hash'],
    'code': content['code_version'],
  }


def _verdict(gate: dict[str, Any] | None) -> str:
  if gate is None:
    return 'not asked'
  if not gate['blessed']:
    return f'refused: {"; ".join(gate.get("reasons", ["see gate.json"]))}'
  return blessing(gate['champion_version'])


def blessing(champion_version: int | None) -> str:
  """Returns the verdict of the gate on a blessed candidate."""
  if champion_version is None:
    return 'blessed, without a champion'
  return f'blessed against version {champion_version}'
