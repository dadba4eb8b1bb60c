"""Training loop over rounds: plan, phases, commit, evaluation, checkpoint."""

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors, records, seeds
from tff_algos.core.structures import Array, Structure
from tff_algos.evaluation import evaluator as evaluator_lib
from tff_algos.numerics import statistics
from tff_algos.rounds import plans
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import interrupts
from tff_algos.training import checkpoint as checkpoint_lib
from tff_algos.training import client_state_store, dropouts
from tff_algos.training import restarts as restarts_lib
from tff_algos.training import selection as selection_lib

Metrics = dict[str, float]

_NOT_EVALUATED = evaluator_lib.Evaluation({})


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
  """Options of the training loop: rounds, evaluations, checkpoints.

  Attributes:
    num_rounds: Total number of rounds, >= 1; of a run that continues another,
      its own.
    evaluation_interval: Rounds between evaluations, >= 1; the initial state
      and the last round are always evaluated.
    checkpoint_interval: Rounds between checkpoints, >= 1; the last round is
      always saved.
    num_kept_checkpoints: Number of latest checkpoints that are kept, >= 1.
    client_states: `'memory'`, or `'disk'` for states that do not fit.
    restarts: Best of several initial states, tried before round 1.
    selection: The best round, and early stopping.
    dropout_rate: Probability of each sampled client to drop out of a phase, in
      [0, 1); see `dropouts`. No client drops out of evaluations, nor of phases
      without `Phase.has_dropout`.
  """

  num_rounds: int
  evaluation_interval: int = 1
  checkpoint_interval: int = 10
  num_kept_checkpoints: int = 2
  client_states: str = client_state_store.MEMORY
  restarts: restarts_lib.RestartsConfig = restarts_lib.RestartsConfig()
  selection: selection_lib.SelectionConfig = selection_lib.SelectionConfig()
  dropout_rate: float = 0.0

  def __post_init__(self):
    checks.check_int('num_rounds', self.num_rounds, minimum=1)
    checks.check_int('evaluation_interval', self.evaluation_interval, minimum=1)
    checks.check_int('checkpoint_interval', self.checkpoint_interval, minimum=1)
    checks.check_int(
      'num_kept_checkpoints', self.num_kept_checkpoints, minimum=1
    )
    checks.check_one_of(
      'client_states',
      self.client_states,
      (client_state_store.MEMORY, client_state_store.DISK),
    )
    if self.restarts.num_restarts > 1:
      checks.check_int(
        'restarts.num_rounds',
        self.restarts.num_rounds,
        minimum=1,
        maximum=self.num_rounds,
      )
    checks.check_below_one('dropout_rate', self.dropout_rate)


class Observer(Protocol):
  """Observer of a training: writes metrics and shows progress."""

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Discards the records after a round, whose successors are run again.

    Args:
      round_num: The round.
      entries: Checked entries of the records until it; empty if they were
        removed.
    """

  def record(
    self,
    round_num: int,
    metrics: Mapping[str, float],
    memberships: np.ndarray | None = None,
  ) -> None:
    """Records a finished round; round 0 is the initial state.

    Args:
      round_num: The round.
      metrics: name -> value.
      memberships: `Evaluation.memberships` of an evaluated round.
    """

  def persist(self) -> records.Entries:
    """Makes the records durable, before a checkpoint; returns their entries."""
    ...


class ClientStates(Protocol):
  """Client states that phase calls read and replace."""

  def load(self, client_indices: np.ndarray) -> Structure:
    """Returns the states of some clients, stacked `[n, ...]`."""
    ...

  def stage(self, client_indices: np.ndarray, states: Structure) -> None:
    """Replaces the states of some clients by `[n, ...]`."""
    ...


class PhaseRun(NamedTuple):
  """A phase call that was run.

  Attributes:
    planned: The call as planned, of available clients.
    call: The call without the clients that dropped out.
    output: Its output; None if all clients dropped out.
    server_state: The server state afterwards, NumPy.
  """

  planned: algorithm_lib.PhaseCall
  call: algorithm_lib.PhaseCall
  output: cohort_lib.PhaseOutput | None
  server_state: Structure


class Result(NamedTuple):
  """Final state of a training.

  Attributes:
    server_state: The final server state, NumPy.
    round_num: The last finished round.
  """

  server_state: Structure
  round_num: int


def initial_server_state(
  algorithm: algorithm_lib.FederatedAlgorithm, num_clients: int, seed: int
) -> Structure:
  """Returns the server state before round 1, NumPy."""
  with interrupts.held():
    return cohort_lib.to_numpy(
      algorithm.init_server_state(
        seeds.derive_seed(seed, 'initialize'), num_clients
      )
    )


def build_store(
  algorithm: algorithm_lib.FederatedAlgorithm,
  population: algorithm_lib.Population,
  seed: int,
  folder: Any,
  kind: str,
) -> client_state_store.ClientStateStore:
  """Returns an empty client state store for the algorithm."""
  seed_spec = tf.TensorSpec([2], tf.int32)
  # Not called as a `tf.function`: TensorFlow warns if one process has many.
  initialize = tf.function(
    algorithm.init_client_state,
    autograph=False,
    input_signature=[seed_spec, seed_spec],
  ).get_concrete_function()
  return client_state_store.ClientStateStore(
    functools.partial(initial_client_state, initialize, population),
    population.num_clients,
    folder,
    kind,
    seed,
  )


def initial_client_state(
  initialize: Callable[[tf.Tensor, tf.Tensor], Structure],
  population: algorithm_lib.Population,
  client_index: int,
  seed: int,
) -> Structure:
  """Returns the state of a client that never took part, NumPy.

  Args:
    initialize: `FederatedAlgorithm.init_client_state`, or a graph of it.
    population: All clients.
    client_index: The client.
    seed: The run's seed.
  """
  client_id = population.client_ids[client_index]
  run_seed = seeds.derive_seed(seed, 'initialize')
  client_seed = seeds.derive_seed(seed, 'initialize', 0, client_id)
  return cohort_lib.to_numpy(
    initialize(tf.constant(run_seed), tf.constant(client_seed))
  )


def run_call(
  runtime: cohort_lib.Runtime,
  phase: algorithm_lib.Phase,
  source: cohort_lib.ClientSource,
  states: ClientStates,
  server_state: Structure,
  call: algorithm_lib.PhaseCall,
  round_num: int,
  seed: int,
) -> cohort_lib.PhaseOutput:
  """Runs one phase call; new client states are staged."""
  cohort = cohort_lib.Cohort(call, round_num, seed, source, states.load)
  output = runtime.run(phase, server_state, cohort)
  if phase.uses_client_state:
    for client_indices, client_states in output.client_states:
      states.stage(client_indices, client_states)
  return output


def run_phases(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  states: ClientStates,
  server_state: Structure,
  round_num: int,
  seed: int,
  dropout_rate: float = 0.0,
  is_available: Array | None = None,
) -> Iterator[PhaseRun]:
  """Runs one round; yields every phase call of the plan after it has run.

  A phase whose clients all drop out is skipped.

  Args:
    algorithm: The algorithm.
    runtime: A runtime whose context is already entered.
    source: The training examples.
    states: The client states; new ones are staged.
    server_state: The server state before the round.
    round_num: From 1.
    seed: The run's seed.
    dropout_rate: See `TrainingConfig`.
    is_available: Whether each client may take part, bool `[num_clients]`; None
      for all.
  """
  population = source.population
  if is_available is not None:
    population = population._replace(is_available=is_available)
  plan = algorithm.plan_round(server_state, population, round_num, seed)
  calls = plans.Calls(plan, server_state)
  for planned in calls:
    _check_planned(algorithm, planned, population)
    if is_available is not None:
      # Some plans call all clients.
      planned = dropouts.restrict(planned, is_available)
    phase = algorithm.phases[planned.phase]
    rate = dropout_rate if phase.has_dropout else 0.0
    call = dropouts.drop(planned, source.population, round_num, seed, rate)
    output = None
    if len(call.client_indices):
      with interrupts.held():
        output = run_call(
          runtime,
          phase,
          source,
          states,
          calls.server_state,
          call,
          round_num,
          seed,
        )
      calls.server_state = output.server_state
    yield PhaseRun(planned, call, output, calls.server_state)


def _check_planned(
  algorithm: algorithm_lib.FederatedAlgorithm,
  call: algorithm_lib.PhaseCall,
  population: algorithm_lib.Population,
) -> None:
  """Raises StageTypeError if a plan names no phase or client that there is."""
  if call.phase not in algorithm.phases:
    raise errors.StageTypeError(
      f'algorithm {algorithm.name!r}: plan_round calls the phase '
      f'{call.phase!r}; its phases are {", ".join(algorithm.phases)}'
    )
  indices = np.asarray(call.client_indices)
  wrong = indices[(indices < 0) | (indices >= population.num_clients)]
  if wrong.size:
    raise errors.StageTypeError(
      f'phase {call.phase!r}: the plan contains client_index {wrong[0]}, and '
      f'the {population.num_clients} clients have indices from 0 to '
      f'{population.num_clients - 1}'
    )


def run_round(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  store: client_state_store.ClientStateStore,
  server_state: Structure,
  round_num: int,
  seed: int,
  dropout_rate: float = 0.0,
) -> tuple[Structure, Metrics]:
  """Runs one round, see `run_phases`.

  New client states are staged; the caller commits or discards them.

  Returns:
    The server state after the round, and its metrics.
  """
  metrics: Metrics = {}
  means: dict[str, statistics.MeanStat] = {}
  for run in run_phases(
    algorithm,
    runtime,
    source,
    store,
    server_state,
    round_num,
    seed,
    dropout_rate,
  ):
    server_state = run.server_state
    _add_counts(metrics, run.planned, run.call)
    if run.output:
      _add_metrics(metrics, means, run.call.purpose, run.output)
  return server_state, metrics


def train(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  store: client_state_store.ClientStateStore,
  checkpoints: checkpoint_lib.CheckpointManager,
  evaluator: evaluator_lib.Evaluator,
  observer: Observer,
  config: TrainingConfig,
  seed: int,
) -> Result:
  """Trains from the latest checkpoint, or from the start, to the last round.

  Early stopping (`config.selection`) or a spent budget
  (`FederatedAlgorithm.account`) may end it before the last round.

  After any interruption (an error, Ctrl-C, a full disk, `kill -9`), a later
  call with the same arguments resumes from the latest checkpoint and ends in
  the same state, bit for bit.

  Args:
    algorithm: The algorithm to train.
    runtime: A runtime whose context is already entered.
    source: The training examples.
    store: An empty client state store.
    checkpoints: Checkpoint manager of the run.
    evaluator: Evaluator that uses `store` and `runtime`.
    observer: Receives the metrics of every round.
    config: Numbers of rounds, evaluations and checkpoints.
    seed: The run's seed, >= 0; `store.seed` and the checkpoint hold the seed of
      the chosen restart.
  """
  round_num = max(checkpoints.rounds(), default=0)
  costs, progress = {}, selection_lib.Progress()
  if round_num == 0:
    _check_metric(algorithm, source, evaluator, config, seed)
    try_seed = functools.partial(_try_seed, algorithm, runtime, source, config)
    store.seed, costs = restarts_lib.choose(config.restarts, seed, try_seed)
  server_state = initial_server_state(
    algorithm, source.population.num_clients, store.seed
  )
  if round_num:
    server_state = checkpoints.restore(round_num, server_state, store)
    progress = checkpoints.progress(round_num)
  seed = store.seed
  select = functools.partial(
    selection_lib.update,
    config=config.selection,
    default_metric=evaluator.selection_metric,
  )
  if round_num == 0 or checkpoints.starts_run(round_num):
    observer.resume(0, {})
    seen = evaluator.evaluate(server_state)
    observer.record(round_num, seen.metrics | costs, seen.memberships)
    first = select(progress, round_num=round_num, metrics=seen.metrics)
    if round_num:  # The initial state of round 0 has no checkpoint.
      progress = first
  else:
    observer.resume(round_num, checkpoints.checked_records(round_num))
  run = functools.partial(run_round, algorithm, runtime, source, store)
  is_over = is_spent(algorithm, server_state)
  is_over = is_over or progress.is_over(config.selection)
  # Whether a round has ended, and records and states are those of it.
  is_whole = False
  try:
    while round_num < config.num_rounds and not is_over:
      start = time.monotonic()
      next_state, metrics = run(
        server_state, round_num + 1, seed, config.dropout_rate
      )
      metrics['seconds'] = time.monotonic() - start
      if algorithm.account is not None:
        metrics |= algorithm.account.metrics(next_state)
      is_last = round_num + 1 == config.num_rounds
      is_last = is_last or is_spent(algorithm, next_state)
      is_due = is_last or (round_num + 1) % config.evaluation_interval == 0
      seen = evaluator.evaluate(next_state) if is_due else _NOT_EVALUATED
      with interrupts.held():
        is_whole = False
        observer.record(round_num + 1, metrics | seen.metrics, seen.memberships)
        store.commit()
        server_state, round_num = next_state, round_num + 1
        if is_due:
          after = select(progress, round_num=round_num, metrics=seen.metrics)
          # A run that is extended loses no patience by its old end, which is
          # not evaluated in one that was as long from the start.
          is_extra = round_num % config.evaluation_interval > 0
          if after.best_round == round_num or not is_extra:
            progress = after
        is_whole = True
      is_over = is_last or progress.is_over(config.selection)
      is_best = progress.best_round == round_num
      is_periodic = round_num % config.checkpoint_interval == 0
      if is_last or is_over or is_best or is_periodic:
        _save(observer, checkpoints, round_num, server_state, store, progress)
  except BaseException as error:
    store.discard()
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and is_whole:
      _save(observer, checkpoints, round_num, server_state, store, progress)
    raise
  return Result(server_state, round_num)


def is_spent(
  algorithm: algorithm_lib.FederatedAlgorithm, server_state: Structure
) -> bool:
  """Returns whether the privacy budget forbids another round."""
  account = algorithm.account
  return account is not None and account.is_spent(server_state)


@interrupts.held()
def _save(
  observer: Observer,
  checkpoints: checkpoint_lib.CheckpointManager,
  round_num: int,
  server_state: Structure,
  store: client_state_store.ClientStateStore,
  progress: selection_lib.Progress,
) -> None:
  """Saves a checkpoint after making the metrics rows before it durable."""
  entries = observer.persist()
  checkpoints.save(round_num, server_state, store, progress, entries=entries)


def _check_metric(
  algorithm: algorithm_lib.FederatedAlgorithm,
  source: cohort_lib.ClientSource,
  evaluator: evaluator_lib.Evaluator,
  config: TrainingConfig,
  seed: int,
) -> None:
  """Raises ConfigError before any restart is tried for a missing metric."""
  if config.restarts.num_restarts > 1 and config.selection.metric:
    server_state = initial_server_state(
      algorithm, source.population.num_clients, seed
    )
    selection_lib.update(
      selection_lib.Progress(),
      config.selection,
      0,
      evaluator.evaluate(server_state).metrics,
      evaluator.selection_metric,
    )


def _try_seed(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  config: TrainingConfig,
  seed: int,
) -> restarts_lib.Trial:
  """Trains one restart for some rounds in memory, without checkpoints."""
  store = build_store(
    algorithm, source.population, seed, '', client_state_store.MEMORY
  )
  server_state = initial_server_state(
    algorithm, source.population.num_clients, seed
  )
  names, costs = algorithm_lib.Cost._fields, []
  for round_num in range(1, config.restarts.num_rounds + 1):
    server_state, metrics = run_round(
      algorithm,
      runtime,
      source,
      store,
      server_state,
      round_num,
      seed,
      config.dropout_rate,
    )
    store.commit()
    costs.append([metrics.get(f'cost/{name}', 0) for name in names])
  cost = algorithm_lib.Cost(*np.sum(costs, axis=0).tolist())
  return restarts_lib.judge(algorithm, runtime, source, server_state, cost)


def _add_counts(
  metrics: Metrics,
  planned: algorithm_lib.PhaseCall,
  call: algorithm_lib.PhaseCall,
) -> None:
  """Adds a phase call's cost and client counts to the round's metrics."""
  counts = {f'cost/{name}': n for name, n in call.cost._asdict().items()}
  counts['clients/dropped'] = len(planned.client_indices) - len(
    call.client_indices
  )
  counts['clients/invalid'] = 0
  for name, value in counts.items():
    metrics[name] = metrics.get(name, 0) + value


def _add_metrics(
  metrics: Metrics,
  means: dict[str, statistics.MeanStat],
  purpose: str,
  output: cohort_lib.PhaseOutput,
) -> None:
  """Adds a phase call's metrics to the round's metrics.

  Of a phase that is called again, those of clients are means over all calls,
  and those of the server are the last call's.
  """
  metrics['clients/invalid'] += output.num_invalid
  for name, stat in output.client_metrics.items():
    key = f'{purpose}/{name}'
    if key in means:
      stat = tf.nest.map_structure(operator.add, means[key], stat)
    means[key] = stat
    metrics[key] = float(statistics.value_of(means[key]))
  for name, value in output.server_metrics.items():
    # Values other than numbers, such as an audit record, are not metrics.
    if not tf.nest.is_nested(value):
      metrics[f'{purpose}/{name}'] = float(np.asarray(value))
