"""Continuation of an earlier run on another client population.

A run starts from a checkpoint of its parent run: rounds and seed go on, and all
states move by client id, as the algorithm declares it (`core.carrying`). The
moved states are the run's first checkpoint, so that all that follows is an
ordinary training. On the same data it equals the parent trained on, bit for
bit, but for the noise and cohorts of a private run, which are its own.

    <workdir>/parent.json                       the parent, and numbers of moves
    <workdir>/checkpoints/departed/clients.json runs since each client left
                                   states.npz   their states

States of clients that left are kept for a number of runs; a client that returns
gets them back.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import (
  cache_folder,
  carrying,
  checks,
  errors,
  sealed_json,
)
from tff_algos.core.structures import Structure
from tff_algos.evaluation import cluster_losses
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import checkpoint as checkpoint_lib
from tff_algos.training import client_state_store, loop, moved_states

GO_ON, ANEW = 'go_on', 'anew'
_PARENT_REMEDY = (
  'Put a copy of it back, or start the run anew in another --workdir, with '
  '--continue_from'
)
_STATE_REMEDY = (
  'Take its options (number of clusters, optimizer of the server, ...), data '
  'of the same features and classes, and the version of the program that wrote '
  'it; or start without --continue_from'
)
# Rows that are copied at once.
_BLOCK_SIZE = 1024
# Below this share of known clients a warning names the numbers.
_FEW_KNOWN = 0.5


@dataclasses.dataclass(frozen=True)
class ContinuationConfig:
  """Options of a run that continues an earlier one.

  Attributes:
    parent: Workdir of the run to continue; empty for none. Rounds go on from
      its last one: `training.num_rounds` counts the rounds of this run alone.
    round: Checkpoint of the parent: `'last'`, `'best'` or a round.
    optimizer: Slots of the server optimizer: `'go_on'` or `'anew'`.
    schedule: Rounds of `lr_schedule.after_rounds` count from the first run
      (`'go_on'`) or from this one (`'anew'`). What an algorithm itself derives
      from the round, such as its periods, always goes on.
    min_known: Smallest share of clients with a state in the parent run, in
      [0, 1]; below it the run is refused.
    keep_departed: Number of runs for which the states of clients that left are
      kept, >= 0.
  """

  parent: str = ''
  round: str = checkpoint_lib.LAST
  optimizer: str = GO_ON
  schedule: str = GO_ON
  min_known: float = 0.1
  keep_departed: int = 30

  def __post_init__(self):
    checkpoint_lib.parse_choice(self.round)
    checks.check_one_of('optimizer', self.optimizer, (GO_ON, ANEW))
    checks.check_one_of('schedule', self.schedule, (GO_ON, ANEW))
    checks.check_fraction('min_known', self.min_known)
    checks.check_int('keep_departed', self.keep_departed, minimum=0)

  def identity(self) -> Mapping[str, Any]:
    """Returns the options that decide the states of a run or a later one."""
    names = ('optimizer', 'keep_departed')
    return {'continuation': {name: getattr(self, name) for name in names}}


class Parent(NamedTuple):
  """The run that another run continues, as in its `parent.json`.

  Attributes:
    workdir: Its folder, relative to that of the other run; absolute if that is
      a mirror of an object store, which another machine has elsewhere.
    round_num: The round that the other run starts from.
    dataset_version: The version that it was trained on.
    stayed: Number of clients in both populations.
    returned: Number of clients that had left before the parent run.
    joined: Number of clients without a state.
    left: Number of clients of the parent run alone.
  """

  workdir: str
  round_num: int
  dataset_version: str
  stayed: int = 0
  returned: int = 0
  joined: int = 0
  left: int = 0


def read_parent(workdir: str | os.PathLike[str]) -> Parent | None:
  """Returns the parent of a run; None if it continues none.

  Raises:
    DataError: If `parent.json` is damaged.
  """
  path = pathlib.Path(workdir, checkpoint_lib.PARENT_FILE)
  if not os.path.lexists(path):
    return None
  content = sealed_json.read(path, _PARENT_REMEDY)
  try:
    return Parent(**content)
  except TypeError as error:
    raise errors.DataError(
      f'{path} is damaged: {error}. {_PARENT_REMEDY}'
    ) from None


def find_parent(
  workdir: str | os.PathLike[str],
  parent: str | os.PathLike[str],
  config: ContinuationConfig,
) -> Parent | None:
  """Returns the run that a run continues, or is about to continue.

  Args:
    workdir: Folder of the run.
    parent: Folder of its parent; empty to go on with a run that was started.
    config: The checkpoint to start from.

  Raises:
    ConfigError: If the run was started without a parent, with another, or after
      another of its rounds.
    CheckpointError: If the parent has no such checkpoint, or `parent.json` is
      not that of the run's checkpoints.
  """
  own = checkpoint_lib.reader(workdir)
  has_started = bool(own.rounds())
  if has_started:
    own.check_parent(own.rounds()[-1])
  known = read_parent(workdir)
  if not parent:
    return known
  spelled = _spell(parent, workdir)
  if has_started:
    if known is None or known.workdir != spelled:
      before = f'continues {known.workdir}' if known else 'continues no run'
      raise errors.ConfigError(
        f'{workdir} cannot continue {parent}: it is trained already, and '
        f'{before}. Take another --workdir, or leave --continue_from out to '
        'train it on'
      )
    choice = checkpoint_lib.parse_choice(config.round)
    if isinstance(choice, int) and choice != known.round_num:
      raise errors.ConfigError(
        f'{workdir} cannot continue {parent} after round {choice}: it is '
        f'trained already, and continues it after round {known.round_num}. '
        'Take another --workdir, or set config.continuation.round to that'
      )
    return known
  manager = checkpoint_lib.reader(parent)
  round_num = manager.find(checkpoint_lib.parse_choice(config.round))
  identity = manager.identity(round_num)
  return Parent(spelled, round_num, identity['dataset_version'])


def _spell(
  parent: str | os.PathLike[str], workdir: str | os.PathLike[str]
) -> str:
  """Returns the folder of a parent as in `Parent`."""
  absolute, cache = os.path.abspath(parent), cache_folder.path()
  is_in_mirror = pathlib.Path(os.path.abspath(workdir)).is_relative_to(cache)
  if is_in_mirror and not pathlib.Path(absolute).is_relative_to(cache):
    return absolute
  return os.path.relpath(parent, workdir)


def parent_folder(
  workdir: str | os.PathLike[str], parent: Parent
) -> pathlib.Path:
  """Returns the workdir of the parent of a run."""
  # Normal, as the folder of the run need not exist yet.
  return pathlib.Path(os.path.normpath(pathlib.Path(workdir, parent.workdir)))


def start(
  parent: Parent,
  workdir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  store: client_state_store.ClientStateStore,
  checkpoints: checkpoint_lib.CheckpointManager,
  config: ContinuationConfig,
) -> Parent:
  """Moves the parent's states to a run, as its first checkpoint.

  Nothing of the parent is changed. A call that was interrupted may be repeated.

  Args:
    parent: From `find_parent`.
    workdir: Folder of the run.
    algorithm: The algorithm.
    runtime: A runtime whose context is already entered.
    source: The training examples of the new population.
    store: Its client states, empty.
    checkpoints: Checkpoint manager of the run.
    config: Options.

  Returns:
    The parent with the numbers of clients.

  Raises:
    ConfigError: If the parent has another model, algorithm or seed, or too few
      clients in common with the population.
    CheckpointError: If its checkpoint is damaged, has no client ids, or a
      server state of other shapes.
  """
  folder = parent_folder(workdir, parent)
  manager = checkpoint_lib.reader(folder)
  try:
    round_num = manager.find(parent.round_num)
  except errors.CheckpointError as error:
    raise errors.CheckpointError(
      f'{error}. Or name the run to start from, with --continue_from'
    ) from None
  saved = manager.read(round_num)
  _check_same(folder, saved, checkpoints.run_identity, store)
  departed = moved_states.read_departed(folder)
  clients = source.population.client_ids
  known = (*saved.client_ids, *departed.client_ids)
  moves = _match(clients, known, len(saved.client_ids))
  counted = _count(parent, moves)
  _check_overlap(folder, counted, config)
  store.seed = saved.manifest['seed']
  old, initial = (
    loop.initial_server_state(algorithm, size, store.seed)
    for size in (len(saved.client_ids), len(clients))
  )
  old = checkpoint_lib.fill(folder, old, saved.server_leaves, _STATE_REMEDY)
  rows = moved_states.StoredRows(manager.states_folder, saved.index, departed)
  carrier = moved_states.Carrier(
    algorithm.carry,
    moves,
    departed,
    rows.has_state(),
    config.optimizer == ANEW,
  )
  server_state = carrier.move(old, initial)
  server_state = _choose_clusters(
    algorithm, runtime, source, server_state, moves
  )
  path = pathlib.Path(workdir)
  # First, so that a start that is interrupted is known as one of this parent.
  sealed_json.write(path / checkpoint_lib.PARENT_FILE, counted._asdict())
  _import_states(algorithm, old, rows, store, moves, parent.round_num)
  moved_states.write_departed(
    path, known, departed, moves, rows, carrier, config.keep_departed
  )
  checkpoints.save(parent.round_num, server_state, store, starts_run=True)
  return counted


def _check_same(
  folder: pathlib.Path,
  saved: checkpoint_lib.Saved,
  identity: Mapping[str, Any],
  store: client_state_store.ClientStateStore,
) -> None:
  """Raises unless the states of a run fit another run."""
  old = saved.manifest['identity']
  # Privacy, since the account counts releases of one kind.
  for name in ('model', 'algorithm', 'seed', 'privacy'):
    before, now = old.get(name, {}), identity.get(name, {})
    if name == 'algorithm':  # Its options may change.
      before, now = before['name'], now['name']
    if before != now:
      raise errors.ConfigError(
        f'{folder} cannot be continued: its {name} is {before!r}, the config '
        f'says {now!r}. Set it as it is there, or start without '
        '--continue_from'
      )
  before, now = saved.manifest['client_state'], store.row_type()
  if before != now:
    raise errors.ConfigError(
      f'{folder} cannot be continued: a client state there is {before}, with '
      f'this config it is {now}. Take the options of that run that decide what '
      'clients keep, or start without --continue_from'
    )


def _match(
  clients: Sequence[str], known: Sequence[str], num_old: int
) -> moved_states.Moves:
  position = {client_id: index for index, client_id in enumerate(known)}
  origin = [position.get(client_id, -1) for client_id in clients]
  return moved_states.Moves(np.array(origin, np.int32), num_old)


def _count(parent: Parent, moves: moved_states.Moves) -> Parent:
  stayed = int(np.sum((moves.origin >= 0) & (moves.origin < moves.num_old)))
  joined = len(moves.newcomers)
  return parent._replace(
    stayed=stayed,
    returned=len(moves.origin) - stayed - joined,
    joined=joined,
    left=moves.num_old - stayed,
  )


def _check_overlap(
  folder: pathlib.Path, counted: Parent, config: ContinuationConfig
) -> None:
  """Warns of few known clients, and raises ConfigError below the limit."""
  num_known = counted.stayed + counted.returned
  num_clients = num_known + counted.joined
  share = num_known / num_clients
  words = (
    f'{num_known} of {num_clients} clients '
    f'({share:.0%}) have a state in {folder}, where '
    f'{counted.left} others left'
  )
  if share < config.min_known:
    raise errors.ConfigError(
      f'{words}; config.continuation.min_known is {config.min_known:g}. Do the '
      'client ids of both datasets mean the same? Lower min_known, or start '
      'without --continue_from'
    )
  if share < _FEW_KNOWN:
    logging.warning('%s; the others start as newcomers.', words)
  else:
    logging.info('%s.', words)


def _choose_clusters(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  server_state: Structure,
  moves: moved_states.Moves,
) -> Structure:
  """Returns the state with newcomers in the cluster of their lowest loss."""
  rules = algorithm.carry.rules
  asked = np.intersect1d(
    moves.newcomers, source.population.clients_with_examples
  ).astype(np.int32)
  if not _has_clusters(rules) or not len(asked):
    return server_state
  losses = cluster_losses.of_clients(
    algorithm, runtime, server_state, source, asked
  )
  chosen = np.argmin(losses, axis=1)
  return _set_clusters(rules, server_state, asked, chosen)


def _has_clusters(rule: carrying.Rule | carrying.Rules) -> bool:
  """Returns whether a field, however deep, holds cluster ids of clients."""
  if isinstance(rule, carrying.Rule):
    return rule is carrying.CLUSTER
  return any(_has_clusters(one) for one in rule.values())


def _set_clusters(
  rule: carrying.Rule | carrying.Rules,
  state: Structure,
  clients: np.ndarray,
  chosen: np.ndarray,
) -> Structure:
  """Returns the state with the chosen clusters of some clients."""
  if isinstance(rule, carrying.Rule):
    if rule is carrying.CLUSTER:
      state = np.array(state)
      state[clients] = chosen
    return state
  return state._replace(
    **{
      name: _set_clusters(one, getattr(state, name), clients, chosen)
      for name, one in rule.items()
    }
  )


def _import_states(
  algorithm: algorithm_lib.FederatedAlgorithm,
  old: Structure,
  rows: moved_states.StoredRows,
  store: client_state_store.ClientStateStore,
  moves: moved_states.Moves,
  round_num: int,
) -> None:
  """Gives the store the states of known clients, and of some newcomers."""
  newcomer_state = algorithm.carry.newcomer_state
  newcomer_row = newcomer_state and store.encode(newcomer_state(old))
  is_stored = rows.has_state()
  clients = [
    index
    for index, origin in enumerate(moves.origin)
    if (is_stored[origin] if origin >= 0 else newcomer_state)
  ]

  def row(client: int) -> np.ndarray:
    origin = moves.origin[client]
    if origin < 0 and newcomer_row is not None:
      return newcomer_row
    return rows.row(origin)

  store.import_rows(round_num, clients, _blocks(row, clients))


def _blocks(row: Any, keys: Sequence[int]) -> Iterator[np.ndarray]:
  """Yields the rows of some clients, stacked in blocks."""
  for first in range(0, len(keys), _BLOCK_SIZE):
    yield np.stack([row(key) for key in keys[first : first + _BLOCK_SIZE]])
