"""Virtual clock: simulated duration of each round by `round_time`.

Three kinds of run have a clock: committees (CMFL), peer-to-peer learning
(segmented gossip, BrainTorrent), and a server that exchanges one model with
each client (FedAvg).
"""

import numpy as np

from tff_algos.evaluation import round_time
from tff_algos.reports.run import run as run_lib

_DOWN, _SOLVES = 'cost/downlink_floats', 'cost/local_solves'
_MEMBERS, _TRAINING = 'train/num_members', 'train/num_training'
# Metric that only peer-to-peer algorithms write.
_PULLED = ('train/consensus_distance', 'train/num_messages')
_SERVED = ('fed_avg',)
COMMITTEE, PEERS, SERVER = 'CMFL', 'peers', 'FedAvg'
BRAIN_TORRENT, GOSSIP = 'BrainTorrent', 'Gossip'


def kind(run: run_lib.Run) -> str | None:
  """Returns `COMMITTEE`, `PEERS` or `SERVER`; None without a clock."""
  if _DOWN not in run.rounds or _SOLVES not in run.rounds:
    return None
  if run.rounds.numbers(_SOLVES)[0] > 0:
    # Row 0 has the cost of all trials of restarts, but not their rounds.
    return None
  if _MEMBERS in run.rounds and _TRAINING in run.rounds:
    return COMMITTEE
  if all(name in run.rounds for name in _PULLED):
    return PEERS
  name = (run.config.get('algorithm') or {}).get('name')
  return SERVER if name in _SERVED else None


def own(run: run_lib.Run, rate: float) -> np.ndarray | None:
  """Returns the seconds of a run's own rounds.

  Args:
    run: The run; `run.clock` has the seconds of computation.
    rate: Numbers per second.

  Returns:
    Communication and computation of each row of `run.rounds`, float64
    `[num_rows, 2]`, 0 without training clients; None for a run without a clock.
  """
  found = kind(run)
  if found == PEERS:
    solves, received = _columns(run, _SOLVES, _DOWN)
    # Training clients receive in parallel.
    transfer = _share(received, solves) / rate
    return _rounds(round_time.pulling(transfer, 1, run.clock.work), solves)
  return None if found is None else _times(run, rate)[found]


def retimed(run: run_lib.Run, rate: float) -> dict[str, np.ndarray]:
  """Returns the simulated time of other systems, which were not run.

  They have the same number of training clients per round, and the same model.

  Args:
    run: The run.
    rate: Numbers per second.

  Returns:
    System -> seconds as in `own`; empty for peer-to-peer runs, which do not
    determine the number of clients of other systems.
  """
  found = kind(run)
  if found in (None, PEERS):
    return {}
  times = _times(run, rate)
  del times[found]
  return times


def rate_text(rate: float) -> str:
  """Returns the speed of a connection as text."""
  return f'{rate / 1e6:,g} million floats/s'


def _times(run, rate) -> dict[str, np.ndarray]:
  """Returns the round times of all systems, including this run."""
  work = run.clock.work
  solves, down = _columns(run, _SOLVES, _DOWN)
  # Clients that drop out have received the model, too.
  transfer = _share(down, solves) / rate
  members, training = np.zeros_like(solves), solves
  if kind(run) == COMMITTEE:
    members, training = _columns(run, _MEMBERS, _TRAINING)
  times = {
    SERVER: round_time.pulling(transfer, 2, work),
    BRAIN_TORRENT: round_time.pulling(transfer, training, work),
    GOSSIP: round_time.pulling(transfer, training - 1, work),
  }
  if kind(run) == COMMITTEE:
    times[COMMITTEE] = round_time.cmfl(
      transfer,
      members,
      training,
      run.clock.download,
      work,
    )
  return {name: _rounds(one, training) for name, one in times.items()}


def _columns(run, *names: str) -> list[np.ndarray]:
  return [np.nan_to_num(run.rounds.numbers(name)) for name in names]


def _share(total, count) -> np.ndarray:
  """Returns total / count, 0 where count is 0."""
  return np.divide(total, count, out=np.zeros_like(total), where=count > 0)


def _rounds(times: round_time.RoundTime, num_training) -> np.ndarray:
  """Returns both parts of each row as columns, 0 without training clients."""
  parts = np.stack(np.broadcast_arrays(*times), axis=1)
  return np.where(num_training[:, np.newaxis] > 0, parts, 0.0)
