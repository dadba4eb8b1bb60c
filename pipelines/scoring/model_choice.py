"""Selection of the exported model that scores a client."""

import csv
import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from tff_algos.core import checks, errors, records
from tff_algos.data import schema

PERSONALIZED = 'personalized'
CLUSTER = 'cluster'

# Values of `ScoringConfig.otherwise` besides `cluster_<id>`.
PICK = 'pick'
REFUSE = 'refuse'
_CLUSTER_PREFIX = 'cluster_'
# A cluster: more digits are no number that Python reads.
_NUMBER = r'[0-9]{1,9}'

ALL_CLIENTS = 'all'
_EVALUATE_AGAIN = 'Run binaries.evaluate again, which writes it anew.'
# Placeholder for a cluster to be picked by lowest loss.
TO_BE_PICKED = -1


class Choice(NamedTuple):
  """The model of one client.

  Attributes:
    model: `PERSONALIZED` or `CLUSTER`.
    cluster_id: Cluster, or `TO_BE_PICKED`; 0 for a personalized model.
    chosen_by: Reason: `'client_id'` (it has a personalized model),
      `'assignment'` (by a table), `'lowest_loss'` (on the client's labelled
      examples) or `'default'`.
  """

  model: str
  cluster_id: int
  chosen_by: str


@dataclasses.dataclass(frozen=True)
class ScoringConfig:
  """Split and clients to score, and model selection.

  A client is scored by its personalized model if `personalized` is set and
  there is one; else by the cluster that a table of assignments names; else as
  `otherwise` says.

  Attributes:
    split: Split to score: `'train'`, `'validation'` or `'test'`.
    group: Clients to score: `'participating'`, `'unseen'`, `'unlabelled'` or
      `'all'`.
    personalized: Whether to score clients with their personalized models, if
      any.
    otherwise: Model of all other clients: `'pick'` takes the cluster of the
      lowest mean loss on the client's labelled examples of `pick_split`;
      `'cluster_<id>'` one cluster for all; `'refuse'` ends the run with an
      error.
    pick_split: Split whose labels `'pick'` uses; differs from `split`.
    max_rows: Batch size: largest number of examples per model call.
  """

  split: str = schema.TEST
  group: str = ALL_CLIENTS
  personalized: bool = True
  otherwise: str = PICK
  pick_split: str = schema.TRAIN
  max_rows: int = 4096

  def __post_init__(self) -> None:
    checks.check_one_of('split', self.split, schema.SPLITS)
    checks.check_one_of(
      'group', self.group, (*schema.GROUPS, schema.UNLABELLED, ALL_CLIENTS)
    )
    checks.check_one_of('pick_split', self.pick_split, schema.SPLITS)
    checks.check_int('max_rows', self.max_rows, minimum=1)
    if self.otherwise not in (PICK, REFUSE) and self.default_cluster is None:
      raise errors.ConfigError(
        f"otherwise must be '{PICK}', '{REFUSE}' or '{_CLUSTER_PREFIX}<id>' "
        f"such as '{_CLUSTER_PREFIX}0', got {self.otherwise!r}"
      )
    if self.otherwise == PICK and self.pick_split == self.split:
      raise errors.ConfigError(
        f'pick_split and split are both {self.split!r}: a cluster would be '
        'picked by the labels that it is then scored on. Choose another '
        'pick_split.'
      )

  @property
  def default_cluster(self) -> int | None:
    """Returns the cluster of `otherwise`, or None."""
    number = self.otherwise.removeprefix(_CLUSTER_PREFIX)
    if number == self.otherwise or not re.fullmatch(_NUMBER, number):
      return None
    return int(number)


def choose(
  client_id: str,
  config: ScoringConfig,
  known: Collection[str],
  assignments: Mapping[str, int],
) -> Choice:
  """Returns the model of a client.

  Args:
    client_id: The client.
    config: Model selection.
    known: Clients with a personalized model.
    assignments: Clusters assigned to some clients.

  Raises:
    DataError: If there is no model for it.
  """
  if config.personalized and client_id in known:
    return Choice(PERSONALIZED, 0, 'client_id')
  if client_id in assignments:
    return Choice(CLUSTER, assignments[client_id], 'assignment')
  if config.otherwise == PICK:
    return Choice(CLUSTER, TO_BE_PICKED, 'lowest_loss')
  if config.default_cluster is not None:
    return Choice(CLUSTER, config.default_cluster, 'default')
  raise errors.DataError(
    f'client {client_id[:100]!r} has no personalized model and no assignment, '
    f"and otherwise='{REFUSE}'. Give it one, or score it by a cluster: "
    f"otherwise='{PICK}' or '{_CLUSTER_PREFIX}<id>'."
  )


def read_assignments(path: pathlib.Path) -> dict[str, int]:
  """Returns the cluster of each client in a CSV table.

  Args:
    path: A file with columns `client_id` and `cluster_id`, such as
      `evaluation/clients.csv`; other columns are ignored.

  Raises:
    DataError: If it cannot be read, lacks a column, names a client twice, a
      cluster is no number >= 0, or an evaluation's table was changed since.
  """
  folder = path.resolve().parent
  known = records.read(folder, _EVALUATE_AGAIN) or {'files': {}}
  name = f'{folder.name}/{path.name}'
  entries = {name: known['files'][name]} if name in known['files'] else {}
  found = records.first_problem(folder.parent, entries)
  if found:
    raise errors.DataError(f'{found}. {_EVALUATE_AGAIN}')
  assignments: dict[str, int] = {}
  try:
    with path.open(newline='', encoding='utf-8-sig') as file:
      reader = csv.DictReader(file, strict=True)
      missing = {'client_id', 'cluster_id'} - set(reader.fieldnames or ())
      if missing:
        raise errors.DataError(
          f'{path} has no column {" and no ".join(sorted(missing))}'
        )
      for row in reader:
        client_id, cluster_id = row['client_id'], row['cluster_id'] or ''
        if not client_id:
          raise errors.DataError(
            f'{path}, line {reader.line_num}: the row has no client_id'
          )
        if not re.fullmatch(_NUMBER, cluster_id):
          raise errors.DataError(
            f'{path}, line {reader.line_num}: cluster_id must be a number >= '
            f'0, got {cluster_id[:20]!r}'
          )
        if client_id in assignments:
          raise errors.DataError(
            f'{path}, line {reader.line_num}: client {client_id!r} comes twice'
          )
        assignments[client_id] = int(cluster_id)
  except (OSError, UnicodeDecodeError, csv.Error) as error:
    raise errors.DataError(
      f'the assignments in {path} cannot be read: {error}'
    ) from None
  return assignments
