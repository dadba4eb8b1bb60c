"""Record of the gate, `gate.json` in a workdir."""

import dataclasses
import os
import pathlib
from typing import Any

from tff_algos.core import config as config_lib
from tff_algos.core import errors, sealed_json

FILE = 'gate.json'
_RUN_REMEDY = (
  'After a false alarm raise the threshold and run binaries.gate again; after '
  'bad data train on corrected data, in another workdir'
)
_REMEDY = 'Remove it and run binaries.gate again.'


@dataclasses.dataclass(frozen=True)
class Group:
  """Comparison of one group.

  Attributes:
    name: Such as `'overall'`, `'cluster 1'` or `'source upright'`.
    num_units: Number of clients, or of held-out examples.
    champion: Score of the champion.
    candidate: Score of the candidate.
    fall: Fall from champion to candidate, see `paired_falls.Fall`.
    low: Its lower confidence bound, one-sided.
    high: Its upper confidence bound, one-sided.
    threshold: Largest tolerated fall.
    result: `'passed'`, `'refused'` or `'too small'`.
  """

  name: str
  num_units: int
  champion: float
  candidate: float
  fall: float
  low: float
  high: float
  threshold: float
  result: str


@dataclasses.dataclass(frozen=True)
class GateRecord:
  """Verdict of the gate on one round of a run.

  Attributes:
    blessed: Whether the candidate may be released.
    reasons: Why not; empty if blessed.
    round_num: Round of the candidate.
    config_hash: Hash of the run's config, with the seed.
    dataset_version: Dataset of the comparison.
    candidate: Model -> SHA-256 of its `bundle.json`; empty if it could not be
      exported.
    champion: The same of the compared champion; empty if there was none.
    champion_version: Its version; None if there was none.
    ignored_champion: Why a champion was ignored, if it was.
    ignored_version: Its version.
    checks: Name -> whether it passed, of all but the comparison.
    score: `'accuracy'` or `'mse'`.
    groups: The comparison.
    num_left_out: Clients that could not be compared.
    thresholds: Section `gate` of the config.
  """

  blessed: bool
  reasons: tuple[str, ...]
  round_num: int
  config_hash: str
  dataset_version: str
  candidate: dict[str, str]
  champion: dict[str, str]
  champion_version: int | None = None
  ignored_champion: str | None = None
  ignored_version: int | None = None
  checks: dict[str, bool] = dataclasses.field(default_factory=dict)
  score: str = ''
  groups: tuple[Group, ...] = ()
  num_left_out: int = 0
  thresholds: dict[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def subject(self) -> tuple[int, str, str]:
    """Returns round, config and dataset of the candidate."""
    return self.round_num, self.config_hash, self.dataset_version


def write(folder: str | os.PathLike[str], record: GateRecord) -> None:
  """Writes `gate.json`."""
  sealed_json.write(pathlib.Path(folder, FILE), config_lib.to_dict(record))


def read(folder: str | os.PathLike[str]) -> GateRecord | None:
  """Returns the record of a workdir; None if there is none.

  Raises:
    DataError: If it is damaged.
  """
  path = pathlib.Path(folder, FILE)
  if not os.path.lexists(path):
    return None
  values = sealed_json.read(path, _REMEDY)
  try:
    groups = tuple(Group(**group) for group in values.pop('groups'))
    reasons = tuple(values.pop('reasons'))
    return GateRecord(**values, groups=groups, reasons=reasons)
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise errors.DataError(f'{path} is damaged: {error}. {_REMEDY}') from None


def require_blessed(record: GateRecord, remedy: str = _RUN_REMEDY) -> None:
  """Raises NotApprovedError with all reasons unless the record is blessed.

  Args:
    record: The record.
    remedy: What to do, a sentence.
  """
  if not record.blessed:
    raise errors.NotApprovedError(
      f'the gate refuses round {record.round_num}: '
      f'{"; ".join(record.reasons)}. The exported models stay as they are. '
      f'{remedy}'
    )


def as_text(record: GateRecord) -> str:
  """Returns the record as a table for people."""
  version = record.champion_version
  against = 'without a champion'
  if version is not None:
    against = f'against version {version}'
  verdict = 'blessed' if record.blessed else 'refused'
  lines = [f'round {record.round_num} {against}: {verdict}']
  lines += [
    f'  {name}: {"passed" if passed else "refused"}'
    for name, passed in record.checks.items()
  ]
  width = max((len(group.name) for group in record.groups), default=0)
  if record.groups:
    lines.append(
      f'  {record.score:{width}}  units  champion  candidate     fall'
      '               bounds  threshold'
    )
  for group in record.groups:
    bounds = f'{group.low:+.4f} to {group.high:+.4f}'
    lines.append(
      f'  {group.name:{width}}  {group.num_units:5d}  {group.champion:8.4f}'
      f'  {group.candidate:9.4f}  {group.fall:+7.4f}  {bounds:>19}'
      f'  {group.threshold:9.4g}  {group.result}'
    )
  if record.num_left_out:
    lines.append(f'  clients that cannot be compared: {record.num_left_out:,}')
  return '\n'.join(lines)
