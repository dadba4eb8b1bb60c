"""L2GD against an independent implementation, round by round.

`tests.testing.l2gd_oracle` takes the paper's iterations one coin at a time in
NumPy float64; the library takes whole runs of them in float32.
"""

import dataclasses

import numpy as np
import pytest

from tests.testing import l2gd_oracle, toys
from tff_algos.algorithms import l2gd
from tff_algos.numerics import statistics
from tff_algos.runtimes import debug_runtime

_TOLERANCE = {'rtol': 5e-5, 'atol': 5e-5}
_NUM_ROUNDS = 6
_SEED = 5
# One client without examples, and one with a single one.
_SIZES = (7, 0, 1, 12, 5)
_THETAS = np.array([[3.0, 0, -1], [-1, 2, 2]])
_SOURCE = toys.linear_clients(
  _THETAS, np.eye(2)[np.arange(len(_SIZES)) % 2], _SIZES
)
_CASES = {
  'as it is': {},
  'nobody is pulled': {'proximal_weight': 0.0},
  'all the way to the mean': {
    'client_learning_rate': 0.1,
    'proximal_weight': 4.0,
    'loss_scale': 1.0,
  },
  'long runs of aggregation': {'aggregation_prob': 0.8},
}


def _build(name):
  """Returns our algorithm of a case, and the oracle's options."""
  options = dataclasses.replace(l2gd_oracle.Options(), **_CASES[name])
  config = l2gd.L2gdConfig(**dataclasses.asdict(options))
  return l2gd.build_l2gd(toys.linear(3), config), options


def _expected(algorithm, options):
  server_state, _ = toys.initial_states(algorithm, _SOURCE.population, _SEED)
  examples = [_SOURCE.examples(i) for i in range(len(_SIZES))]
  return l2gd_oracle.run(
    [(one.x.astype(np.float64), one.y.astype(np.float64)) for one in examples],
    server_state.model_weights['kernel'][:, 0],
    options,
    _NUM_ROUNDS,
    server_state.seed,
  )


def _compare(algorithm, options, runtime):
  """Runs round by round and compares everything that a round leaves behind."""
  start, longest = None, np.zeros(2)
  for round_num, oracle in enumerate(_expected(algorithm, options), start=1):
    server_state, states, (output,) = toys.run_rounds(
      algorithm, runtime, _SOURCE, 1, _SEED, start, round_num
    )
    start = (server_state, states)
    models = [one.personalized_weights['kernel'][:, 0] for one in states]
    loss = statistics.value_of(output.client_metrics['loss'])
    for found, expected in (
      (server_state.model_weights['kernel'][:, 0], oracle.mean),
      (models, oracle.models),
      (loss, oracle.loss),
    ):
      np.testing.assert_allclose(found, expected, **_TOLERANCE)
    # What a round starts with is the communication of the round before.
    assert oracle.num_communications == round_num - 1
    steps = [int(value) for value in output.server_metrics.values()]
    assert steps == [oracle.coins.count(1), oracle.coins.count(0)]
    longest = np.maximum(longest, steps)
  # Else the comparison would not see how often a client steps.
  assert longest.min() > 1


@pytest.mark.parametrize('name', _CASES)
def test_debug_runtime_follows_the_oracle(name):
  algorithm, options = _build(name)
  runtime = debug_runtime.DebugRuntime(algorithm, len(_SIZES))
  _compare(algorithm, options, runtime)


@pytest.mark.verify
def test_graphs_follow_the_oracle():
  algorithm, options = _build('as it is')
  with toys.graph_runtime(algorithm, len(_SIZES)) as runtime:
    _compare(algorithm, options, runtime)
