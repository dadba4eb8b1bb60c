"""Stand-ins for parts of a training: an observer, an evaluator, a runtime."""

import numpy as np

from tff_algos.evaluation import evaluator


class Recorder:
  """Keeps the rows that it is told, but for what the clock says."""

  def __init__(self):
    self.rows = {}
    self.persisted = []

  def resume(self, round_num, entries):
    assert not entries or round_num
    kept = range(round_num + 1) if round_num else ()
    self.rows = {r: row for r, row in self.rows.items() if r in kept}

  def record(self, round_num, metrics, memberships=None):
    row = dict(metrics)
    seconds = row.pop('seconds', 0.0)
    assert seconds >= 0
    assert round_num not in self.rows
    if memberships is not None:
      row['memberships'] = memberships
    self.rows[round_num] = row

  def persist(self):
    self.persisted = list(self.rows)
    return {}


def _raise_ctrl_c():
  raise KeyboardInterrupt


class InterruptedRecorder(Recorder):
  """Ctrl-C falls into the recording of a round, before or after the row."""

  def __init__(self, round_num, is_after, interrupt=_raise_ctrl_c):
    super().__init__()
    self._round_num = round_num
    self._is_after = is_after
    self._interrupt = interrupt

  def record(self, round_num, metrics, memberships=None):
    if self._is_after:
      super().record(round_num, metrics, memberships)
    if round_num == self._round_num:
      self._round_num = None
      self._interrupt()
    if not self._is_after:
      super().record(round_num, metrics, memberships)


class FailingRuntime:
  """Raises in its n-th phase call, evaluations included."""

  def __init__(self, runtime, call_number, error):
    self._runtime = runtime
    self._calls_left = call_number
    self._error = error

  def run(self, *arguments):
    self._calls_left -= 1
    if not self._calls_left:
      raise self._error
    return self._runtime.run(*arguments)


class NoEvaluation:
  """Finds only which state it was given."""

  selection_metric = 'none'

  def evaluate(self, server_state):
    found = {'total': float(np.asarray(server_state.total))}
    return evaluator.Evaluation(found)
