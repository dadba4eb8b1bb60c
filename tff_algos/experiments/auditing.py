"""Keeps and verifies the audit log of a training with committees (CMFL)."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.adversaries import false_clients
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.algorithms.cmfl.consensus import statements
from tff_algos.core import errors
from tff_algos.experiments import experiment, output
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import loop


def attend(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  observer: loop.Observer,
  runtime: cohort_lib.Runtime,
) -> tuple[loop.Observer, cohort_lib.Runtime]:
  """Returns who keeps the log in between, or both as they are without one."""
  level = getattr(config.algorithm.options, 'audit', audit_log.NONE)
  if level == audit_log.NONE:
    return observer, runtime
  auditor = Auditor(runtime, observer, audit_log.AuditLog(folder), level)
  return auditor, auditor  # pyright: ignore[reportReturnType]


class Auditor:
  """Stands between the round loop and its runtime and observer.

  It is a runtime that notes what the phases of a round show, and an observer
  that writes it down when the round is done. Restarts' trials pass by: only
  what is recorded as a round is written.
  """

  def __init__(
    self,
    runtime: cohort_lib.Runtime,
    observer: loop.Observer,
    log: audit_log.AuditLog,
    level: str,
  ):
    """Takes the runtime and the observer of a training.

    Args:
      runtime: Entered already.
      observer: Is told of everything after the log.
      log: Where rounds are written.
      level: One of `audit_log.LEVELS`, but not `'none'`.
    """
    self._runtime, self._observer = runtime, observer
    self._log, self._level = log, level
    self._entry: dict[str, Any] = {}
    self._arrays: dict[str, np.ndarray] = {}

  def run(
    self, phase: Any, server_state: Any, cohort: cohort_lib.Cohort
  ) -> cohort_lib.PhaseOutput:
    """Runs a phase call, and notes it if it is part of a round."""
    output = self._runtime.run(phase, server_state, cohort)
    if cohort.call.purpose == 'train':
      self._note_training(server_state, cohort, output)
    elif cohort.call.purpose == 'adopt':
      self._note_vote(server_state, cohort, output)
    return output

  def resume(self, round_num: int) -> None:
    """Cuts the log off after a round."""
    self._entry, self._arrays = {}, {}
    self._log.resume(round_num)
    self._observer.resume(round_num)

  def record(
    self,
    round_num: int,
    metrics: Mapping[str, float],
    memberships: np.ndarray | None = None,
  ) -> None:
    """Writes a finished round; of round 0 there is nothing to write."""
    if round_num:
      arrays = self._arrays if self._level == audit_log.UPLOADS else {}
      self._log.append({'round': round_num, **self._entry}, arrays)
      self._entry, self._arrays = {}, {}
    self._observer.record(round_num, metrics, memberships)

  def persist(self) -> None:
    """Makes the observer's rounds permanent; those of the log are already."""
    self._observer.persist()

  def _note_training(self, server_state, cohort, output) -> None:
    inputs, ids = cohort.call.client_inputs, cohort.source.population.client_ids
    if isinstance(inputs, false_clients.MarkedInput):
      inputs = inputs.client_input
    record = output.server_metrics['record']
    agreed, proposed = server_state.agreed, output.server_state.proposed
    members = cohort.call.client_indices[inputs.is_member]
    uploads = record['values']
    clients = [
      {
        'id': ids[index],
        'is_member': bool(np.isin(index, members)),
        'is_valid': bool(record['is_valid'][k]),
        'num_examples': float(record['num_examples'][k]),
        'distance': float(record['distances'][k]),
        'upload': verification.upload_digest(uploads, k),
      }
      for k, index in enumerate(record['client_index'])
    ]
    digest = statements.digest_arrays(agreed.model_weights)
    self._entry = {
      'committee': [one['id'] for one in clients if one['is_member']],
      'clients': clients,
      'selected': [ids[k] for k in np.flatnonzero(proposed.is_selected)],
      'elected': [ids[k] for k in np.flatnonzero(proposed.is_member)],
      'before': digest,
      'proposed': statements.digest_arrays(proposed.model_weights),
      'vote': None,
      'after': digest,
    }
    self._arrays = verification.arrays_of(  # pyright: ignore[reportAttributeAccessIssue]
      uploads, agreed.model_weights, proposed.model_weights
    )

  def _note_vote(self, server_state, cohort, output) -> None:
    if not self._entry:
      return  # Everybody was lost in training, so nothing was proposed.
    told = output.server_metrics.items()
    self._entry['vote'] = {name: float(value) for name, value in told}
    self._entry['after'] = statements.digest_arrays(
      output.server_state.agreed.model_weights
    )


def verify(
  config: experiment.ExperimentConfig, folder: str | os.PathLike[str]
) -> list[verification.Verdict]:
  """Writes evaluation/audit.csv; returns the verdicts, a round each.

  Raises:
    UserError: If the algorithm keeps no log, or there is none.
  """
  algorithm = config.algorithm.name
  if algorithm != 'cmfl':
    raise errors.ConfigError(
      'binaries.audit verifies what committees of cmfl decided, but '
      f'config.algorithm.name is {algorithm!r}; take a config such as '
      'configs/cmfl/digits.py'
    )
  options = config.algorithm.options
  periods = algorithms.periods_of(config.algorithm, config.lr_schedule)
  rules = verification.Rules(
    options.upload,
    lambda round_num: periods[config.lr_schedule.period(round_num)].rate(
      round_num
    ),
    options.committee.distance,
    options.committee.selection,
    options.committee.election_center,
  )
  verdicts = verification.verify(folder, rules)
  rows = [
    {
      'round': verdict.round_num,
      'has_uploads': verdict.has_uploads,
      'faults': '; '.join(verdict.faults),
    }
    for verdict in verdicts
  ]
  output.write_table(pathlib.Path(folder, 'evaluation', 'audit.csv'), rows)
  return verdicts


def summarize(verdicts: list[verification.Verdict], last_hash: str) -> str:
  """Returns how many rounds verify.

  Raises:
    DataError: If one does not; names the rounds and what is wrong.
  """
  wrong = [verdict for verdict in verdicts if verdict.faults]
  if wrong:
    lines = (f'round {one.round_num}: {"; ".join(one.faults)}' for one in wrong)
    raise errors.DataError(
      f'{len(wrong)} of {len(verdicts)} rounds do not verify:\n'
      + '\n'.join(lines)
    )
  num_whole = sum(verdict.has_uploads for verdict in verdicts)
  return (
    f'All {len(verdicts)} rounds verify, {num_whole} of them from the uploads '
    f'on. The last line has the SHA-256 {last_hash}.'
  )
