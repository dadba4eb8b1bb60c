"""Rounds of the library beside those of an oracle, written from a paper."""

import numpy as np

from tests.testing import toys
from tff_algos.runtimes import debug_runtime
from tff_algos.training import simulation

THETAS = np.array([[3.0, 0, -1], [-1, 2, 2], [0, -3, 1]])
# One client without examples, one with a single one, and short last batches.
SIZES = (7, 0, 1, 12, 5, 10, 4)
NUM_AVAILABLE = 6
MIXTURES = np.random.default_rng(5).dirichlet(np.ones(3), len(SIZES))
SOURCE = toys.linear_clients(THETAS, MIXTURES, SIZES)


def in_turns(sizes, num_sources=3):
  """Returns clients that take turns in which of the sources they follow."""
  turns = np.arange(len(sizes)) % num_sources
  return toys.linear_clients(
    THETAS[:num_sources], np.eye(num_sources)[turns], sizes
  )


def clients(source):
  """Returns (x, y) of each client in float64."""
  examples = map(source.examples, range(source.population.num_clients))
  return [
    (one.x.astype(np.float64), one.y.astype(np.float64)) for one in examples
  ]


def rounds(algorithm, source, expected, seed):
  """Runs as many rounds as the oracle, from `toys.initial_states`.

  Yields:
    What the oracle expects of a round, the server state, the client states and
    the outputs after it; no client result was invalid.
  """
  start = toys.initial_states(algorithm, source.population, seed)
  num_clients = source.population.num_clients
  with debug_runtime.DebugRuntime(algorithm, num_clients) as runtime:
    run = simulation.Simulation(algorithm, source, runtime, seed, start)
    for oracle in expected:
      outputs = [one.output for one in run.run_round()]
      assert not any(output.num_invalid for output in outputs)
      yield oracle, run.server_state, run.client_states, outputs
