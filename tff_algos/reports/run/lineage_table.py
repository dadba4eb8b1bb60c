"""Table of a run's lineage, from `lineage.json`."""

import json
import pathlib
from typing import Any

from tff_algos.core import errors


def rows(workdir: pathlib.Path) -> list[tuple[str, str]]:
  """Returns (name, value) of the lineage; empty if the run has none.

  Raises:
    DataError: If `lineage.json` is damaged.
  """
  path = workdir / 'lineage.json'
  if not path.is_file():
    return []
  try:
    content = json.loads(path.read_text())
    dataset, parent = content['dataset'], content['parent']
    return [
      ('round', str(content['round_num'])),
      ('continues', parent['run'] if parent else 'no run'),
      ('dataset', dataset['version']),
      ('as of', dataset['as_of'] or 'no date'),
      *(
        (f'SHA-256 of {name}', sha256)
        for name, sha256 in dataset['raw_files'].items()
      ),
      ('code', content['code_version']),
      ('gate', _verdict(content['gate'])),
      *(
        ('released', f'version {release["version"]}')
        for release in content['releases']
      ),
    ]
  except (ValueError, KeyError, TypeError) as error:
    raise errors.DataError(
      f'{path} is damaged: {error!r}. Remove it and release the run again with '
      'binaries.export, which writes it anew.'
    ) from None


def _verdict(gate: dict[str, Any] | None) -> str:
  if gate is None:
    return 'not asked'
  if not gate['blessed']:
    return f'refused: {"; ".join(gate["reasons"])}'
  if gate['champion_version'] is None:
    return 'blessed, without a champion'
  return f'blessed against version {gate["champion_version"]}'
