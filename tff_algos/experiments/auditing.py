"""Audit log of training with committees (CMFL): recording and verification."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.adversaries import false_clients
from tff_algos.algorithms import registry as algorithms
from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.algorithms.cmfl.consensus import statements
from tff_algos.core import errors, records
from tff_algos.experiments import experiment, session, tables
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import continuation, loop


def attend(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  observer: loop.Observer,
  runtime: cohort_lib.Runtime,
) -> tuple[loop.Observer, cohort_lib.Runtime]:
  """Returns runtime and observer wrapped by an `Auditor`, if a log is kept."""
  level = getattr(config.algorithm.options, 'audit', audit_log.NONE)
  if level == audit_log.NONE:
    return observer, runtime
  auditor = Auditor(runtime, observer, audit_log.AuditLog(folder), level)
  return auditor, auditor  # pyright: ignore[reportReturnType]


class Auditor:
  """Audit log as a wrapper of the round loop's runtime and observer.

  As a runtime it collects the outputs of the phases of a round, and as an
  observer it writes them when the round ends. Trials of restarts are not
  recorded as rounds, so they are not written.
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
      runtime: Runtime, entered.
      observer: Observer, called after the log is written.
      log: Log to write rounds to.
      level: One of `audit_log.LEVELS`, but not `'none'`.
    """
    self._runtime, self._observer = runtime, observer
    self._log, self._level = log, level
    self._entry: dict[str, Any] = {}
    self._arrays: verification.Arrays = {}
    self._is_at_start = False

  def run(
    self, phase: Any, server_state: Any, cohort: cohort_lib.Cohort
  ) -> cohort_lib.PhaseOutput:
    """Runs a phase call, and records it if it is part of a round."""
    output = self._runtime.run(phase, server_state, cohort)
    if cohort.call.purpose == 'train':
      self._note_training(server_state, cohort, output)
    elif cohort.call.purpose == 'adopt':
      self._note_vote(output)
    return output

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Truncates the log after a round."""
    self._entry, self._arrays = {}, {}
    self._is_at_start = round_num == 0
    self._log.resume(round_num, entries)
    self._observer.resume(round_num, entries)

  def record(
    self,
    round_num: int,
    metrics: Mapping[str, float],
    memberships: np.ndarray | None = None,
  ) -> None:
    """Writes a finished round; the state before the first has no entry.

    It is round 0, or the last round of the run that is continued.
    """
    if not self._is_at_start:
      arrays = self._arrays if self._level == audit_log.UPLOADS else {}
      self._log.append({'round': round_num, **self._entry}, arrays)
      self._entry, self._arrays = {}, {}
    self._is_at_start = False
    self._observer.record(round_num, metrics, memberships)

  def persist(self) -> records.Entries:
    """Persists the observer's rounds; those of the log are durable already."""
    return {**self._observer.persist(), **self._log.entries()}

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
    self._arrays = verification.arrays_of(
      uploads, agreed.model_weights, proposed.model_weights
    )

  def _note_vote(self, output) -> None:
    if not self._entry:
      return  # All training clients dropped out, so nothing was proposed.
    told = output.server_metrics.items()
    self._entry['vote'] = {name: float(value) for name, value in told}
    self._entry['after'] = statements.digest_arrays(
      output.server_state.agreed.model_weights
    )


def verify(
  config: experiment.ExperimentConfig, folder: str | os.PathLike[str]
) -> list[verification.Verdict]:
  """Writes evaluation/audit.csv; returns one verdict per round.

  Raises:
    UserError: If the algorithm keeps no log, or there is none.
  """
  algorithm = config.algorithm.name
  if algorithm != 'cmfl':
    raise errors.ConfigError(
      'binaries.audit verifies the committee decisions of cmfl, but '
      f'config.algorithm.name is {algorithm!r}; take a config such as '
      'configs/cmfl/digits.py'
    )
  options = config.algorithm.options
  # The log has the rounds of training, which count from the first run.
  parent = continuation.read_parent(folder)
  schedule = session.continued(config, parent).lr_schedule
  periods = algorithms.periods_of(config.algorithm, schedule)
  rules = verification.Rules(
    options.upload,
    lambda round_num: periods[schedule.period(round_num)].rate(round_num),
    options.committee.distance,
    options.committee.selection,
    options.committee.election_center,
    options.audit == audit_log.UPLOADS,
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
  tables.write_table(pathlib.Path(folder, 'evaluation', 'audit.csv'), rows)
  return verdicts


def summarize(verdicts: list[verification.Verdict]) -> str:
  """Returns the number of verified rounds, and the hash of the last line.

  Raises:
    DataError: If one does not; names the rounds and their errors.
  """
  wrong = [verdict for verdict in verdicts if verdict.faults]
  if wrong:
    lines = (f'round {one.round_num}: {"; ".join(one.faults)}' for one in wrong)
    raise errors.DataError(
      f'{len(wrong)} of {len(verdicts)} rounds do not verify:\n'
      + '\n'.join(lines)
    )
  last_hash = verdicts[-1].line_hash if verdicts else '(no line)'
  num_whole = sum(verdict.has_uploads for verdict in verdicts)
  return (
    f'All {len(verdicts)} rounds verify, {num_whole} of them from the uploads '
    f'on. The last line has the SHA-256 {last_hash}.'
  )
