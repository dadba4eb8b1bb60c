"""Rounds in memory, driven by the caller: no workdir and no files.

For research loops and oracles of one's own. `loop.train` is the round loop of
an experiment, with evaluations and checkpoints.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array, Structure
from tff_algos.rounds import phase_types
from tff_algos.runtimes import client_sources
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.training import loop


class ClientStates:
  """The states of all clients in a list, by client index.

  Attributes:
    rows: One state a client, NumPy; may be replaced.
  """

  def __init__(self, rows: Sequence[Structure]):
    """Takes one state a client."""
    self.rows = list(rows)

  def load(self, client_indices: Array) -> Structure:
    """Returns the states of some clients, stacked `[n, ...]`."""
    rows = [self.rows[int(index)] for index in client_indices]
    return tf.nest.map_structure(lambda *leaves: np.stack(leaves), *rows)

  def stage(self, client_indices: Array, states: Structure) -> None:
    """Replaces the states of some clients by stacked ones `[n, ...]`."""
    arrays = cohort_lib.to_numpy(states)
    for position, index in enumerate(client_indices):
      self.rows[int(index)] = tf.nest.map_structure(
        lambda leaf, position=position: leaf[position], arrays
      )


def initial_states(
  algorithm: algorithm_lib.FederatedAlgorithm,
  population: algorithm_lib.Population,
  seed: int = 0,
) -> tuple[Structure, list[Structure]]:
  """Returns the server state and all client states before round 1, NumPy."""
  server_state = loop.initial_server_state(
    algorithm, population.num_clients, seed
  )
  return server_state, [
    loop.initial_client_state(
      algorithm.init_client_state, population, client_index, seed
    )
    for client_index in range(population.num_clients)
  ]


class Simulation:
  """A federated algorithm in memory, one round a call.

  The states may be read and replaced between rounds. Hooks for research:

  *   Initial weights: of a model, `dataclasses.replace(model, initialize=...)`
      before the algorithm is built; of single cluster models, `server_state`.
  *   Cohorts: `run_round` samples from the given clients alone; with a cohort
      size of 0 they are the cohort. The runs that it returns name the cohorts.
  *   Batches: `draw_batches` returns the rows that the steps of local training
      read, from `client_seed`. The graph draws them anew in every epoch. Those
      of one epoch are set by the order of a client's rows, `x[positions[masks >
      0]] = wanted_x`, in a new `ArraySource` that replaces `source` between
      rounds.

  >>> import dataclasses
  >>> import numpy as np
  >>> import tff_algos
  >>> x, y = np.eye(4), np.array([1.0, 2, 3, 4])
  >>> source = tff_algos.ArraySource(
  ...   {'ann': (x[:3], y[:3]), 'bob': (x[3:], y[3:])}
  ... )
  >>> model = tff_algos.build_model(
  ...   tff_algos.parse_model({'name': 'linear_regression', 'use_bias': False}),
  ...   task='regression',
  ...   input_shape=(4,),
  ...   num_outputs=1,
  ... )
  >>> zeros = {'kernel': np.zeros((4, 1), np.float32)}
  >>> model = dataclasses.replace(model, initialize=lambda seed: zeros)
  >>> section = tff_algos.parse_algorithm(
  ...   {
  ...     'name': 'fed_avg',
  ...     'cohort_size': 0,
  ...     'local_training': {
  ...       'batch_size': 2,
  ...       'optimizer': {'learning_rate': 0.5},
  ...     },
  ...   }
  ... )
  >>> algorithm = tff_algos.build_algorithm(section, model)
  >>> runtime = tff_algos.RuntimeConfig('debug')
  >>> with tff_algos.build_runtime(runtime, algorithm, num_clients=2) as opened:
  ...   simulation = tff_algos.Simulation(algorithm, source, opened, seed=0)
  ...   (run,) = simulation.run_round(available=['bob'])
  >>> run.call.client_indices
  array([1], dtype=int32)
  >>> simulation.server_state.model_weights['kernel'].ravel()
  array([0., 0., 0., 4.], dtype=float32)
  >>> batches = tff_algos.draw_batches(
  ...   simulation.client_seed(run.call, 'ann'),
  ...   np.ones(3, np.float32),
  ...   section.options.local_training,
  ... )
  >>> batches.positions.numpy().shape, batches.masks.numpy().sum()
  ((2, 2), 3.0)

  Attributes:
    algorithm: The algorithm.
    runtime: The runtime, entered.
    seed: Seed of all draws, >= 0.
    round_num: The last round that was run; 0 before the first.
    server_state: The server state after that round, NumPy.
    client_states: The state of each client, NumPy.
  """

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    source: cohort_lib.ClientSource,
    runtime: cohort_lib.Runtime,
    seed: int = 0,
    start: tuple[Structure, Sequence[Structure]] | None = None,
  ):
    """Takes a population before its first round.

    Args:
      algorithm: The algorithm.
      source: The clients' examples.
      runtime: A runtime whose context is already entered.
      seed: Seed of all draws, >= 0.
      start: Server state and client states, NumPy; None for `initial_states`.

    Raises:
      ConfigError: If arrays of `source` do not fit the algorithm's model, or
        `start` has not one state for each client.
    """
    self.algorithm = algorithm
    self._client_ids = source.population.client_ids
    self.source = source
    self.runtime = runtime
    self.seed = seed
    self.round_num = 0
    self.server_state, self.client_states = start or initial_states(
      algorithm, source.population, seed
    )
    num_clients = source.population.num_clients
    if len(self.client_states) != num_clients:
      raise errors.ConfigError(
        f'start has {len(self.client_states)} client states, but source has '
        f'{num_clients} clients: give one state for each, in the order of the '
        'client ids'
      )

  @property
  def source(self) -> cohort_lib.ClientSource:
    """The clients' examples; may be replaced by others of the same clients.

    Raises:
      ConfigError: If it is set to other clients, or to arrays that do not fit
        the algorithm's model.
    """
    return self._source

  @source.setter
  def source(self, source: cohort_lib.ClientSource) -> None:
    if source.population.client_ids != self._client_ids:
      raise errors.ConfigError(
        'source has other client ids, or in another order: states would belong '
        'to other clients. Give the same ids in the same order'
      )
    if isinstance(source, client_sources.ArraySource):
      _check_arrays(source, self.algorithm.cluster_model)
    self._source = source

  def run_round(
    self, available: Iterable[str] | None = None
  ) -> list[loop.PhaseRun]:
    """Runs the next round; a round that fails changes no state.

    Args:
      available: Ids of the clients that may take part; None for all.

    Returns:
      The phase calls of the round, with their outputs.

    Raises:
      ConfigError: If a client id is unknown.
    """
    states = ClientStates(self.client_states)
    runs = list(
      loop.run_phases(
        self.algorithm,
        self.runtime,
        self.source,
        states,
        self.server_state,
        self.round_num + 1,
        self.seed,
        is_available=self._is_available(available),
      )
    )
    self.round_num += 1
    self.client_states = states.rows
    if runs:
      self.server_state = runs[-1].server_state
    return runs

  def client_seed(
    self,
    call: algorithm_lib.PhaseCall | str,
    client_id: str,
    round_num: int | None = None,
  ) -> Array:
    """Returns the seed of a client's work in a phase call, int32 `[2]`.

    An algorithm may derive others from it, for a second training of a client.

    Args:
      call: The phase call, or its purpose, such as `'train'`.
      client_id: The client.
      round_num: The round, also a future one; None for the last one.
    """
    purpose = call if isinstance(call, str) else call.purpose
    if round_num is None:
      round_num = self.round_num
    return seeds.derive_seed(self.seed, purpose, round_num, client_id)

  def _is_available(self, available: Iterable[str] | None) -> Array | None:
    """Returns whether each client may take part, bool; None for all."""
    if available is None:
      return None
    client_ids = self.source.population.client_ids
    chosen = {*available}
    unknown = sorted(chosen.difference(client_ids))
    if unknown:
      raise errors.ConfigError(
        f'available names {unknown[0]!r}, which is no client id of the '
        f'population; its ids are like {client_ids[0]!r}'
      )
    return np.array([one in chosen for one in client_ids])


def _check_arrays(
  source: client_sources.ArraySource, model: model_lib.Model
) -> None:
  """Raises ConfigError if a client's examples do not fit a model."""
  spec = phase_types.data_spec(model)
  for client_id, examples in zip(
    source.population.client_ids, source.stream(), strict=True
  ):
    for name in ('x', 'y'):
      wanted, found = getattr(spec, name), getattr(examples, name)
      is_shape = wanted.shape.is_compatible_with(found.shape)
      if not is_shape or wanted.dtype != found.dtype:
        shape = ', '.join(map(str, ('n', *wanted.shape[1:])))
        raise errors.ConfigError(
          f'{name} of client {client_id!r} is {found.dtype} '
          f'{[*found.shape]}, but the model {model.name!r} takes '
          f'{wanted.dtype.name} [{shape}]: convert the arrays, or build the '
          'model for them'
        )
    if model.task == model_lib.CLASSIFICATION:
      labels = examples.y[examples.y != model.padding_label]
      last = model.num_outputs - 1
      if labels.size and not 0 <= labels.min() <= labels.max() <= last:
        raise errors.ConfigError(
          f'y of client {client_id!r} has classes from {labels.min()} to '
          f'{labels.max()}, but the model {model.name!r} takes those from 0 to '
          f'{last}: number them anew, or build the model for more'
        )
