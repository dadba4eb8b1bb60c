"""The surrogate that PPFL's mirror steps go down (Di et al., arXiv:2310.14337,
Section 3).

S_t(C) = sum_i p_i f_i(theta, c_i) + lambda <C, D C>
         - lambda (<C^t, W C^t> + 2 <W C^t, C - C^t>)

is above F and touches it at C^t, where both have the gradient of the step.
"""

from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tests.testing import client_data, ppfl_oracle, toys
from tff_algos.algorithms.ppfl import affinity, membership_descent, mixing

_GENERATOR = np.random.default_rng(4)
_NUM_CLIENTS, _K, _D, _N, _LAMBDA = 6, 3, 4, 10, 0.3
_THETA = _GENERATOR.normal(size=(_K, _D))
_CLIENTS = [
  (_GENERATOR.normal(size=(_N, _D)), _GENERATOR.normal(size=_N))
  for _ in range(_NUM_CLIENTS)
]
_P = _GENERATOR.dirichlet(np.ones(_NUM_CLIENTS))
_FEATURES = affinity.cosine_features(
  tf.constant(_GENERATOR.integers(0, 9, (_NUM_CLIENTS, 5)), tf.float32), False
)
_W = np.asarray(_FEATURES @ tf.transpose(_FEATURES), np.float64)
_AT = _GENERATOR.dirichlet(np.ones(_K), _NUM_CLIENTS)


def _objective(c):
  return ppfl_oracle.objective(_CLIENTS, _THETA, c, _P, _W, _LAMBDA)


def _surrogate(c):
  losses = ppfl_oracle.objective(_CLIENTS, _THETA, c, _P, _W, 0.0)
  degrees = _W.sum(axis=1, keepdims=True)
  tangent = np.sum(_AT * (_W @ _AT)) + 2 * np.sum((_W @ _AT) * (c - _AT))
  return losses + _LAMBDA * (np.sum(degrees * c**2) - tangent)


def _slopes(function):
  """Gradient at C^t by central differences; exact, as both are quadratic."""
  found = np.zeros_like(_AT)
  for place in np.ndindex(*_AT.shape):
    step = np.zeros_like(_AT)
    step[place] = 1e-3
    found[place] = (function(_AT + step) - function(_AT - step)) / 2e-3
  return found


def test_the_step_follows_the_gradient_of_both():
  """p_i grad f_i + 2 lambda (L C^t)_i, as clients and server compute it."""
  mixture = mixing.build(toys.linear(_D), _K, ('all',), 'parameters')
  weights = OrderedDict(
    shared=OrderedDict(),
    canonical=OrderedDict(
      kernel=tf.constant(_THETA[..., np.newaxis], tf.float32)
    ),
  )
  pulls = affinity.penalty_gradients(
    affinity.LaplacianConfig(_LAMBDA), _FEATURES, _AT.astype(np.float32)
  )
  found = []
  for (x, y), c, p, pull in zip(_CLIENTS, _AT, _P, pulls, strict=True):
    data = client_data.build(x, y)
    slope, _ = membership_descent.gradient(
      mixture,
      weights,
      tf.constant(c, tf.float32),
      data,
      tf.constant([1, 2]),
      membership_descent.MembershipConfig(),
      0.5,
    )
    found.append(p * slope + pull)
  of_both = _slopes(_surrogate), _slopes(_objective)
  np.testing.assert_allclose(*of_both, rtol=1e-6, atol=1e-8)
  np.testing.assert_allclose(found, of_both[0], rtol=1e-4, atol=1e-5)
