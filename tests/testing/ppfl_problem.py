"""Planted regressions of PPFL (Di et al., arXiv:2310.14337), and runs on them.

Nine clients, three canonical models, planted memberships (0.9, 0.05, 0.05) turned
by client. All gradients are full, so that the only noise is the diversity of the
clients.
"""

from typing import NamedTuple

import numpy as np

from tests.testing import ppfl_oracle, toys
from tff_algos.algorithms.ppfl import affinity, membership_descent, ppfl
from tff_algos.data import schema
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

NUM_CLIENTS, NUM_CLUSTERS, NUM_FEATURES, NUM_EXAMPLES = 9, 3, 6, 40
LAPLACIAN_WEIGHT = 1e-3
_GENERATOR = np.random.default_rng(0)
THETA = _GENERATOR.normal(size=(NUM_CLUSTERS, NUM_FEATURES))
TRUE = np.stack(
  [np.roll([0.9, 0.05, 0.05], i % NUM_CLUSTERS) for i in range(NUM_CLIENTS)]
)
_X = _GENERATOR.normal(size=(NUM_CLIENTS, NUM_EXAMPLES, NUM_FEATURES))
_NOISE = 0.05 * _GENERATOR.normal(size=(NUM_CLIENTS, NUM_EXAMPLES))
_Y = np.einsum('ind,id->in', _X, TRUE @ THETA) + _NOISE
SOURCE = toys.ToySource(
  [
    schema.Examples(
      x.astype('f'), y.astype('f'), np.zeros(NUM_EXAMPLES, np.int32)
    )
    for x, y in zip(_X, _Y, strict=True)
  ]
)
CLIENTS = [
  (one.x.astype(float), one.y.astype(float))
  for one in map(SOURCE.examples, range(NUM_CLIENTS))
]
SHARES = np.full(NUM_CLIENTS, 1 / NUM_CLIENTS)
AFFINITY = np.ones((NUM_CLIENTS, NUM_CLIENTS))


class Smoothness(NamedTuple):
  """Lipschitz constants.

  Attributes:
    weights: L_1, of every grad_theta f_i.
    memberships: L_2, of every p_i grad_c f_i plus the penalty's own part, from
      the l_1 to the l_infinity norm: p_i max|hess_c f_i| + 2 lambda d_ii.
  """

  weights: float
  memberships: float


def random_block_step(smoothness, num_local_steps):
  """Returns eta = min(1 / (32 E L_1), just below 2 / L_2), for any horizon."""
  return min(
    1 / (32 * num_local_steps * smoothness.weights),
    0.95 * 2 / smoothness.memberships,
  )


def alternating_bound(gap, num_rounds, step):
  """Theorem 2 as its proof has it, without noise: 4 gap / (eta T).

  It bounds the mean over the rounds of |grad_theta F|^2 + sum_i |(c_i - c_i+) /
  eta|_1^2, the squared stationarity.
  """
  return 4 * gap / (step * num_rounds)


def random_block_bound(smoothness, gap, num_rounds, step):
  """Theorem 1, without noise, for one step size and equally likely blocks.

  Eq. 16 makes every iterate equally likely to be the output, so that this, too,
  bounds the mean over the rounds.
  """
  least = min(
    0.5 * (1 - 4 * step * smoothness.weights),
    0.5 * (1 - step * smoothness.memberships / 2),
  )
  return 2 * gap / (num_rounds * step * least)


def smoothness_of(theta):
  """L_1 and L_2, the latter at the largest theta of a run, `[T, K, P]`."""
  grams = [x.T @ x / NUM_EXAMPLES for x, _ in CLIENTS]
  largest = max(
    np.abs(one @ gram @ one.T).max() for one in theta for gram in grams
  )
  return Smoothness(
    max(np.linalg.eigvalsh(gram)[-1] for gram in grams),
    largest / NUM_CLIENTS + 2 * LAPLACIAN_WEIGHT * NUM_CLIENTS,
  )


def build(schedule, step, num_local_steps, interval=1):
  """Both blocks with the base step eta, measured every so many rounds."""
  return ppfl.build_ppfl(
    toys.linear(NUM_FEATURES),
    ppfl.PpflConfig(
      num_clusters=NUM_CLUSTERS,
      schedule=schedule,
      mixing='parameters',
      membership=membership_descent.MembershipConfig(step),
      laplacian=affinity.LaplacianConfig(LAPLACIAN_WEIGHT, 'uniform'),
      stationarity_interval=interval,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        num_local_steps,
        NUM_EXAMPLES,
        optimizers.OptimizerConfig('sgd', step / num_local_steps),
      ),
    ),
  )


def objective(theta, c):
  """F in float64."""
  return ppfl_oracle.objective(
    CLIENTS, theta, c, SHARES, AFFINITY, LAPLACIAN_WEIGHT
  )


def pull(c):
  """Returns the penalty's gradient 2 lambda (D - W) C."""
  degrees = np.diag(AFFINITY.sum(axis=1))
  return 2 * LAPLACIAN_WEIGHT * (degrees - AFFINITY) @ c


class Run:
  """Rounds of the library: what it measured, and where it was."""

  def __init__(
    self, schedule, num_rounds, num_local_steps=1, share=1.0, interval=1
  ):
    start = build(schedule, 1.0, 1)
    state = toys.initial_states(start, SOURCE.population)[0]
    theta = state.model_weights['canonical']['kernel'][..., 0]
    # Nothing grows beyond the planted models.
    self.smoothness = smoothness_of([theta, 1.2 * THETA])
    self.step = share * random_block_step(self.smoothness, num_local_steps)
    if schedule == 'alternating' and num_local_steps == 1:
      self.step = share / (16 * self.smoothness.weights)
    self.algorithm = build(schedule, self.step, num_local_steps, interval)
    self.thetas, self.memberships, self.measured, self.blocks = [], [], [], []
    states = None
    with toys.graph_runtime(self.algorithm, NUM_CLIENTS) as runtime:
      for round_num in range(1, num_rounds + 1):
        states, outputs = self._round(runtime, states, round_num)
        self.measured.append(
          {k: float(v) for k, v in outputs[0].server_metrics.items()}
        )
        self.blocks.append(tuple(outputs[-1].client_metrics))

  def _round(self, runtime, states, round_num):
    server_state, client_states, outputs = toys.run_rounds(
      self.algorithm, SOURCE, 1, 0, states, round_num, runtime=runtime
    )
    self.thetas.append(
      server_state.model_weights['canonical']['kernel'][..., 0]
    )
    self.memberships.append(server_state.membership)
    return (server_state, client_states), outputs

  def series(self, name):
    return np.array([one[name] for one in self.measured])
