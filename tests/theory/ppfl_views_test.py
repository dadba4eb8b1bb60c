"""Other methods that PPFL's objective is seen as (Di et al., arXiv:2310.14337,
Section 3): multi-task learning and decoupling.
"""

from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.ppfl import affinity, membership_descent, ppfl
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_SOURCE = toys.image_clients(4)
_SIZES = _SOURCE.population.num_examples
_P = _SIZES / _SIZES.sum()
_C = np.array([[0.7, 0.3], [0.1, 0.9], [0.5, 0.5], [0.2, 0.8]], np.float32)
_RATE, _MEMBERSHIP_RATE = 0.2, 0.5


def _build(**options):
  """Heads on a shared body; full gradients, a step each."""
  options = {'canonical': ('last_layer',), **options}
  return ppfl.build_ppfl(
    toys.mlp(),
    ppfl.PpflConfig(
      mixing='parameters',
      membership=membership_descent.MembershipConfig(_MEMBERSHIP_RATE),
      local_training=local_training.LocalTrainingConfig(
        1, int(_SIZES.max()), optimizers.OptimizerConfig('sgd', _RATE)
      ),
      **options,
    ),
  )


def _start(algorithm):
  state, states = toys.initial_states(algorithm, _SOURCE.population)
  states = [
    one._replace(membership=c) for one, c in zip(states, _C, strict=True)
  ]
  return state, states


def _round(algorithm, start):
  return toys.run_rounds(algorithm, _SOURCE, 1, start=start)


def _loss_of_client(i, weights):
  """f_i of one plain model."""
  model, examples = toys.mlp(), _SOURCE.examples(i)
  return tf.reduce_mean(
    model.example_losses(
      model.apply(weights, tf.constant(examples.x)), tf.constant(examples.y)
    )
  )


def _own_model(shared, canonical, c):
  """theta_i: the shared body, and the mixture of heads."""
  own = {
    name: tf.tensordot(c, leaf, axes=1) for name, leaf in canonical.items()
  }
  own = {**shared, **own}
  return OrderedDict((name, own[name]) for name in toys.mlp().weights_spec())


def _variables(state):
  return tf.nest.map_structure(tf.constant, state.model_weights)


def test_multi_task_learning():
  """sum_i p_i f_i(theta_i) and a Laplacian of the c_i; its gradient in shared
  weights is that of all tasks, in a canonical head the sum of c_ik times theirs.
  """
  weight = 0.3
  algorithm = _build(
    laplacian=affinity.LaplacianConfig(weight, 'uniform'),
    stationarity_interval=1,
  )
  state, states = _start(algorithm)
  state = state._replace(membership=_C)
  _, _, outputs = _round(algorithm, (state, states))
  variables = _variables(state)
  losses, in_shared, in_heads = 0.0, 0.0, 0.0
  for i, (p, c) in enumerate(zip(_P, _C, strict=True)):
    own = _own_model(variables['shared'], variables['canonical'], c)
    with tf.GradientTape() as tape:
      tape.watch(own)
      loss = _loss_of_client(i, own)
    slopes = tape.gradient(loss, own)
    losses += p * loss.numpy()
    in_shared += p * _flat(slopes, variables['shared'])
    heads = p * _flat(slopes, variables['canonical'])
    in_heads += np.outer(c, heads)
  pairs = np.sum((_C[:, np.newaxis] - _C) ** 2)
  found = outputs[0].server_metrics
  np.testing.assert_allclose(
    found['objective'], losses + weight / 2 * pairs, rtol=1e-5
  )
  np.testing.assert_allclose(
    found['squared_gradient_norm'],
    np.sum(in_shared**2) + np.sum(in_heads**2),
    rtol=1e-4,
  )


def _flat(slopes, names):
  return np.concatenate([slopes[name].numpy().ravel() for name in names])


def test_decoupling():
  """Without a penalty c_i is the private part: a round goes down
  sum_i p_i f_i(theta, c_i) in every c_i by itself, then in theta.
  """
  algorithm = _build()
  state, states = _start(algorithm)
  after, states, outputs = _round(algorithm, (state, states))
  variables = _variables(state)

  def objective(variables, memberships):
    own = [
      _own_model(variables['shared'], variables['canonical'], c)
      for c in memberships
    ]
    losses = [_loss_of_client(i, one) for i, one in enumerate(own)]
    return tf.add_n([p * loss for p, loss in zip(_P, losses, strict=True)])

  memberships = [tf.constant(c) for c in _C]
  with tf.GradientTape() as tape:
    tape.watch(memberships)
    loss = objective(variables, memberships)
  for i, slope in enumerate(tape.gradient(loss, memberships)):
    stepped = _C[i] * np.exp(-_MEMBERSHIP_RATE * slope)
    memberships[i] = tf.constant(stepped / stepped.sum())
  np.testing.assert_allclose(
    [one.membership for one in states], memberships, rtol=1e-5
  )
  with tf.GradientTape() as tape:
    tape.watch(variables)
    loss = objective(variables, memberships)
  slopes = tape.gradient(loss, variables)
  tf.nest.map_structure(
    lambda new, old, slope: np.testing.assert_allclose(
      new, old - _RATE * slope, rtol=1e-4, atol=1e-6
    ),
    after.model_weights,
    variables,
    slopes,
  )
  # The private part stays private.
  assert after.membership == ()
  assert len(outputs) == 1
