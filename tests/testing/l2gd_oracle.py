"""L2GD on linear regression, written from the paper in NumPy float64.

Hanzely and Richtarik, "Federated Learning of a Mixture of Global and Local
Models" (2020), Algorithm 1, one coin after another. It shares with the library
only, written a second time, the hash that draws: the coins of a round are two
runs of drawn lengths.
"""

import math
from typing import NamedTuple

import numpy as np

from tests.testing import index_hash


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    mean: Of the clients with examples, `[P]`.
    models: x_i, `[N, P]`.
    loss: Mean squared error of the examples as the local steps met them.
    num_communications: So far, by the paper's rule: an aggregation step needs
      to communicate if the step before it was local.
    coins: Of the round, 1 for an aggregation step.
  """

  mean: np.ndarray
  models: np.ndarray
  loss: float
  num_communications: int
  coins: list[int]


def coins(config, num_rounds, seed):
  """Returns each round's coins, 1 for an aggregation step."""
  p, drawn = config.aggregation_prob, []
  for t in range(num_rounds):
    first, second = (
      1 + math.floor(math.log((bits + 0.5) / 2**32) / math.log(stay))
      for bits, stay in (
        (index_hash.random_bits(seed, t, 0), p),
        (index_hash.random_bits(seed, t, 1), 1 - p),
      )
    )
    drawn.append([1] * (first if t else 0) + [0] * second)
  return drawn


def run(clients, model, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    model: All models of round 0, `[P]`.
    config: The library's `L2gdConfig`.
    num_rounds: How many.
    seed: Of the coins, `[2]`.
  """
  models = np.tile(np.array(model, np.float64), (len(clients), 1))
  takes_part = np.array([len(y) > 0 for _, y in clients])
  p, n = config.aggregation_prob, takes_part.sum()
  alpha = n * config.client_learning_rate
  last, num_communications, rounds = 1, 0, []
  for flips in coins(config, num_rounds, seed):
    squares = []
    for coin in flips:
      mean = models[takes_part].mean(axis=0)
      if coin:
        share = alpha * config.proximal_weight / (n * p)
        models = models - share * (models - mean)
        num_communications += last == 0
      else:
        for i in np.flatnonzero(takes_part):
          x, y = clients[i]
          errors = x @ models[i] - y
          squares.extend(errors**2)
          gradient = 2 * config.loss_scale * x.T @ errors / len(y)
          models[i] = models[i] - alpha / (n * (1 - p)) * gradient
      last = coin
    rounds.append(
      Round(
        models[takes_part].mean(axis=0),
        models.copy(),
        np.mean(squares),
        num_communications,
        flips,
      )
    )
  return rounds
