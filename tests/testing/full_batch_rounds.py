"""Rounds of full-batch clients with a linear model, for oracles in NumPy.

f_k(w) = |X_k w - y_k|^2 / (2 n_k); a client takes two steps of gradient descent.
"""

import types

import numpy as np

from tests.testing import cohorts, continued, toys
from tff_algos.numerics import optimizers
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import local_training

SIZES = (7, 0, 4, 12, 5)
NUM_STEPS, RATE = 2, 0.05


def training(rate, momentum=0.0):
  return local_training.LocalTrainingConfig(
    NUM_STEPS, 32, optimizers.OptimizerConfig('sgd', rate, momentum)
  )


TRAINING = training(RATE)
SOURCE = toys.linear_clients(
  np.array([[2.0, -1, 0.5], [1, 1, 1]]), np.full((5, 2), 0.5), SIZES
)


def model():
  return toys.linear(3)


def run(algorithm, num_rounds, source=SOURCE):
  """Returns the server state, the client states and the outputs."""
  return toys.run_rounds(algorithm, source, num_rounds)


def run_with_newcomers(algorithm, folder):
  """Runs two rounds, and one more after three clients came, two of them empty.

  Returns:
    The server state and the states of the clients with examples.
  """
  debug = debug_runtime.DebugRuntime(algorithm, len(SIZES))
  case = types.SimpleNamespace(
    algorithm=algorithm, debug=debug, vectorized=debug
  )
  parent = continued.Run(case, folder / 'parent', SOURCE).train(2)
  ids = SOURCE.population.client_ids
  source = continued.population(SOURCE, ids, n1=ids[1], n2=ids[1], n3=ids[0])
  child = parent.follow('child', source).train(1)
  others = [*np.array(ids)[np.flatnonzero(SIZES)], 'n3']
  return child.server_state, [child.state_of(one) for one in others]


def start(algorithm):
  """Returns the initial model as a vector, float64."""
  state, _ = toys.initial_states(algorithm, SOURCE.population)
  return vector(state.model_weights).astype(np.float64)


def vector(weights):
  return weights['kernel'][:, 0]


def drawn(cohort_size, round_num):
  """The library's draw, made again."""
  return cohorts.drawn(0, round_num, np.flatnonzero(SIZES), cohort_size)


def gradient(w, k):
  examples = SOURCE.examples(k)
  x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
  return x.T @ (x @ w - y) / len(y)


def descend(w, k, slope=0.0, pull=0.0, center=0.0, rate=RATE, momentum=0.0):
  """Steps on f_k + <slope, w> + pull / 2 |w - center|^2."""
  velocity = np.zeros_like(w)
  for _ in range(NUM_STEPS):
    velocity = (
      momentum * velocity + gradient(w, k) + slope + pull * (w - center)
    )
    w = w - rate * velocity
  return w


def minimum():
  """The minimum of the mean of f_k over the clients with examples."""
  matrix, vector_ = np.zeros((3, 3)), np.zeros(3)
  for k in np.flatnonzero(SIZES):
    examples = SOURCE.examples(k)
    x = examples.x.astype(np.float64)
    matrix += x.T @ x / len(x)
    vector_ += x.T @ examples.y / len(x)
  return np.linalg.solve(matrix, vector_)
