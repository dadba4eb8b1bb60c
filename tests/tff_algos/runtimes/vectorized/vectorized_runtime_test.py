import dataclasses
import threading
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.rounds import evaluation
from tff_algos.runtimes import cohort
from tff_algos.runtimes.distributed import process_group
from tff_algos.runtimes.vectorized import phase_graph, vectorized_runtime

_CLIENTS = ([1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0], [7.0])


def _runtime(algorithm, clients_per_block: int = 100):
  return vectorized_runtime.VectorizedRuntime(
    algorithm,
    len(_CLIENTS),
    vectorized_runtime.VectorizedConfig(clients_per_block),
  )


class _ThreadGroup:
  """A process group of threads of this process."""

  def __init__(self, size):
    self._barrier = threading.Barrier(size, timeout=60)
    self._said = [None] * size
    self._own = threading.local()

  def run(self, function):
    """Returns what the function gives in each thread."""

    def run_as(index):
      self._own.index = index
      return function()

    indices = range(len(self._said))
    with futures.ThreadPoolExecutor(len(indices)) as pool:
      return list(pool.map(run_as, indices))

  reads_all = True

  def positions(self, cohort_):
    # The last get nothing if there are few.
    size = -(-cohort_.size // len(self._said))
    start = min(self._own.index * size, cohort_.size)
    return slice(start, start + size)

  def check(self):
    pass

  def sum(self, structure):
    return tf.nest.map_structure(
      lambda *leaves: np.sum(leaves, axis=0, dtype=np.asarray(leaves[0]).dtype),
      *self._exchange(structure),
    )

  def gather(self, parts, cohort_):
    joined = sum(self._exchange(parts), [])
    for leaf in tf.nest.flatten(cohort.concatenate(joined)):
      assert len(leaf) == cohort_.size
    return joined

  def agree(self, structure):
    return self._exchange(structure)[0]

  def _exchange(self, value):
    self._said[self._own.index] = value
    self._barrier.wait()
    said = list(self._said)
    self._barrier.wait()
    return said


@pytest.mark.parametrize(
  ('clients', 'vectorizes'),
  [
    ([3, 0], False),
    ([4, 1, 3, 0, 2], True),
    *(
      pytest.param(*case, marks=pytest.mark.verify)
      for case in (([3, 0], True), ([4, 1, 3, 0, 2], False))
    ),
  ],
)
def test_a_group_shares_the_cohort_and_all_get_what_one_gets(
  clients, vectorizes
):
  algorithm = running_sum.algorithm(vectorizes)
  call = running_sum.phase_call(clients, np.arange(len(clients)) / 2)

  def run(group):
    with vectorized_runtime.VectorizedRuntime(
      algorithm, len(_CLIENTS), group=group
    ) as runtime:
      return running_sum.run_call(
        runtime, algorithm, running_sum.source(*_CLIENTS), call, total=10.0
      )

  expected = run(process_group.ALONE)
  group = _ThreadGroup(3)
  outputs = group.run(lambda: run(group))
  parts = [part for part, _ in outputs[0].client_states]
  assert max(len(part) for part in parts) <= -(-len(clients) // 3)
  for output in outputs:
    toys.assert_outputs_close(output, expected, rtol=0)


@pytest.mark.parametrize(
  ('vectorizes', 'clients_per_block'),
  [(True, 1), (True, 2), (True, 100), (False, 0), (False, 1)],
)
def test_phase_by_hand(vectorizes, clients_per_block):
  algorithm = running_sum.algorithm(vectorizes)
  call = running_sum.phase_call([3, 0, 2], [0.5, 1.5, 2.5])
  with _runtime(algorithm, clients_per_block) as runtime:
    output = running_sum.run_call(
      runtime, algorithm, running_sum.source(*_CLIENTS), call, total=10.0
    )
  said = [10 + 15, 10 + 1, 10]
  assert output.server_state.total == 10 + sum(said)
  assert output.server_state.mean == (3 * 25 + 1 * 11 + 0 * 10) / 4
  np.testing.assert_array_equal(output.server_state.said, [11, 0, 10, 25, 0])
  states = toys.states_of(output, [3, 0, 2])
  np.testing.assert_array_equal(states.num_turns, [1, 1, 1])
  np.testing.assert_array_equal(states.last, [[25, 0.5], [11, 1.5], [10, 2.5]])
  assert output.server_metrics['weight'] == 4
  assert output.server_metrics['num_said'] == 3
  assert output.client_metrics['x'].total == 16
  assert output.client_metrics['x'].weight == 4
  assert output.num_invalid == 0


def test_everything_comes_back_as_numpy():
  algorithm = running_sum.algorithm()
  call = running_sum.phase_call([0], [0.0])
  with _runtime(algorithm) as runtime:
    output = running_sum.run_call(
      runtime, algorithm, running_sum.source(*_CLIENTS), call
    )
  assert all(
    isinstance(leaf, (np.ndarray, int))
    for leaf in tf.nest.flatten(tuple(output._replace(client_states=None)))
    if leaf is not None
  )


@pytest.mark.parametrize(
  ('resident_mib', 'num_examples', 'is_once'),
  [(0, 1, False), (1, 1, True), (1, 200_000, False)],
)
def test_every_client_is_read_once_a_call_or_once_for_all(
  resident_mib, num_examples, is_once
):
  """A split stays if all of it fits, 8 bytes an example; client 0 counts, too."""
  clients = running_sum.source([1.0] * num_examples, *_CLIENTS[1:])
  loaded = []
  clients.examples = lambda i, read=clients.examples: (
    loaded.append(i) or read(i)
  )
  clients.stream = lambda: map(clients.examples, range(len(_CLIENTS)))
  algorithm = running_sum.algorithm()
  config = vectorized_runtime.VectorizedConfig(
    clients_per_block=2, resident_mib=resident_mib
  )
  with vectorized_runtime.VectorizedRuntime(algorithm, 5, config) as runtime:
    call = running_sum.phase_call([4, 3, 2, 1], np.zeros(4))
    for _ in range(2):
      running_sum.run_call(runtime, algorithm, clients, call)
  if is_once:
    assert loaded == [0, 1, 2, 3, 4]
  else:
    assert sorted(loaded) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_the_budget_holds_all_resident_splits_together():
  """Each takes 0.4 MiB of 1, so there is no room for both and a block."""
  algorithm = running_sum.algorithm()
  config = vectorized_runtime.VectorizedConfig(
    memory_budget_mib=1, num_parallel_blocks=2
  )
  sources = [running_sum.source(*[[1.0] * 2_600] * 20) for _ in range(2)]
  call = running_sum.phase_call(range(20), np.zeros(20))
  with vectorized_runtime.VectorizedRuntime(algorithm, 20, config) as runtime:
    for source in sources:
      running_sum.run_call(runtime, algorithm, source, call)
      assert [*runtime._resident._rows] == [source]


def test_lack_of_memory_is_one_error_with_a_remedy():
  def client_work(message, client_input, client_state, data, seed):
    # 4 EiB, refused before anything is allocated.
    size = tf.cast(client_input, tf.int64) + 2**60
    return running_sum.client_work(
      message + tf.reduce_max(tf.random.stateless_uniform([size], [0, 1])),
      *(client_input, client_state, data, seed),
    )

  algorithm = running_sum.algorithm(False, client_work=client_work)
  with _runtime(algorithm, 1) as runtime:
    with pytest.raises(
      errors.RuntimeFailureError,
      match=r"phase 'add'.*too little memory \(.*OOM.*clients_per_block",
    ):
      running_sum.run_call(
        runtime,
        algorithm,
        running_sum.source(*_CLIENTS),
        running_sum.phase_call([0], [0.0]),
      )


def test_runs_phases_that_the_algorithm_does_not_list():
  algorithm = running_sum.algorithm()
  phase = evaluation.build_cluster_evaluation(algorithm)
  call = dataclasses.replace(
    running_sum.phase_call([1, 3], ()), phase=phase.name, client_inputs=()
  )
  clients = running_sum.source(*_CLIENTS)
  with _runtime(algorithm) as runtime:
    output = runtime.run(
      phase,
      running_sum.ServerState(np.float32(2), np.float32(0), np.zeros(5, 'f')),
      running_sum.cohort(call, clients),
    )
  # The model says 2 x, the labels are 0.
  np.testing.assert_allclose(
    output.server_metrics['score'].total[:, 0],
    [4 * (4 + 9), 4 * (16 + 25 + 36)],
  )
  np.testing.assert_array_equal(
    output.server_metrics['score'].weight[:, 0], [2, 3]
  )


def test_stages_that_do_not_fit_are_refused_when_it_is_built():
  algorithm = running_sum.algorithm(
    make_message=lambda server_state: server_state.said
  )
  with pytest.raises(errors.StageTypeError, match="phase 'add'"):
    _runtime(algorithm)


@pytest.mark.parametrize(
  'name', ['clients_per_block', 'num_parallel_blocks', 'memory_budget_mib']
)
@pytest.mark.parametrize('value', [-1, 1.5])
def test_config_refuses(name, value):
  with pytest.raises(errors.ConfigError, match=name):
    vectorized_runtime.VectorizedConfig(**{name: value})


def test_blocks_at_the_same_time_change_only_the_order_of_sums():
  algorithm = running_sum.algorithm()
  call = running_sum.phase_call([3, 0, 2, 1, 4], [0.1, 1.7, 2.3, 0.9, 5.1])
  outputs = []
  for num_parallel in (1, 2, 5):
    config = vectorized_runtime.VectorizedConfig(
      clients_per_block=1, num_parallel_blocks=num_parallel
    )
    with vectorized_runtime.VectorizedRuntime(
      algorithm, len(_CLIENTS), config
    ) as runtime:
      outputs.append(
        running_sum.run_call(
          runtime, algorithm, running_sum.source(*_CLIENTS), call
        )
      )
  for output in outputs[1:]:
    toys.assert_outputs_close(output, outputs[0], rtol=1e-6)


@pytest.mark.parametrize(
  ('name', 'options', 'size'),
  [('fed_avg', {}, 2), ('fed_em', {'num_clusters': 2}, 1)],
)
def test_blocks_hold_all_models_that_their_clients_train(
  name, options, size, monkeypatch
):
  """Of 1.2 MB each, two of which fit the cache."""
  sizes = set()
  build = phase_graph.PhaseGraphs.client_work

  def record(graphs, num_clients, clients_per_block):
    sizes.add(clients_per_block)
    return build(graphs, num_clients, clients_per_block)

  monkeypatch.setattr(phase_graph.PhaseGraphs, 'client_work', record)
  num_features = 300_000
  source = toys.linear_clients(
    np.zeros([1, num_features]), np.ones([4, 1]), [1, 1, 2, 1]
  )
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': name, 'cohort_size': 4, **options}),
    toys.linear(num_features),
  )
  with vectorized_runtime.VectorizedRuntime(algorithm, 4) as runtime:
    toys.run_rounds(algorithm, source, 1, runtime=runtime)
  assert sizes == {size}


def test_blocks_of_clients_that_are_looped_over_are_refused():
  with pytest.raises(errors.ConfigError, match='clients_per_block is 8, but'):
    _runtime(running_sum.algorithm(vectorizes=False), 8)


def test_budget_too_small_for_one_client_is_refused():
  algorithm = running_sum.algorithm()
  config = vectorized_runtime.VectorizedConfig(memory_budget_mib=1)
  clients = running_sum.source(np.zeros(200_000).tolist())
  with vectorized_runtime.VectorizedRuntime(algorithm, 1, config) as runtime:
    with pytest.raises(
      errors.ConfigError, match='memory_budget_mib leaves 1.0 MiB'
    ):
      running_sum.run_call(
        runtime, algorithm, clients, running_sum.phase_call([0], [0.0])
      )
