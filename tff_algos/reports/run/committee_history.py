"""Committee decisions of a run, read from its audit log."""

from typing import NamedTuple

import numpy as np

from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.reports.run import run as run_lib

ROLES = ('training', 'committee', 'averaged')


class CommitteeHistory(NamedTuple):
  """All rounds of a log.

  Attributes:
    is_attacker: Mask of Byzantine participating clients, bool `[num_clients]`.
    num_averaged: Number of adopted rounds that averaged each client, int64
      `[num_clients]`.
    distances: Mean distance of every upload to the committee, as of
      `committee.distance`, over training clients and rounds, float64 `[n]`,
      >= 0.
    is_false: Whether each distance is that of an attacker, bool `[n]`.
    rounds: Rounds with a proposal, int64 `[rounds]`.
    attackers: Attackers in each of `ROLES` in these, int64 `[rounds, 3]`.
  """

  is_attacker: np.ndarray
  num_averaged: np.ndarray
  distances: np.ndarray
  is_false: np.ndarray
  rounds: np.ndarray
  attackers: np.ndarray


def read(run: run_lib.Run) -> CommitteeHistory | None:
  """Returns the history of a run; None without an audit log of any round.

  Raises:
    DataError: If the log is damaged.
  """
  if not audit_log.path_of(run.workdir).is_file():
    return None
  entries = [
    entry for entry, _ in audit_log.read(run.workdir) if 'clients' in entry
  ]
  if not entries:
    return None
  ids = run.participating_ids
  malicious = set(run.attacker_ids)
  position = {one: k for k, one in enumerate(ids)}
  counts, scored, attackers = np.zeros(len(ids), np.int64), [], []
  for entry in entries:
    training = [
      one
      for one in entry['clients']
      if one['is_valid'] and not one['is_member']
    ]
    scored += [(one['distance'], one['id'] in malicious) for one in training]
    if (entry['vote'] or {}).get('is_accepted'):
      # Clients that are no longer in clients.csv have no row to count in.
      known = [position[one] for one in entry['selected'] if one in position]
      counts[known] += 1
    by_role = ([one['id'] for one in training], entry['committee'])
    attackers.append(
      [len(malicious & {*one}) for one in (*by_role, entry['selected'])]
    )
  distances, is_false = np.array(scored).reshape(-1, 2).T
  return CommitteeHistory(
    np.array([one in malicious for one in ids]),
    counts,
    distances,
    is_false.astype(bool),
    np.array([entry['round'] for entry in entries]),
    np.array(attackers),
  )
