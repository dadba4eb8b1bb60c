"""EM for mixtures of models: responsibilities, mixture weights, prediction.

Expectation maximization as in FedEM (Marfoq et al. 2021, arXiv:2108.10252,
Algorithm 1), in which a loss is a negative log-likelihood.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.numerics import statistics
from tff_algos.stages.clusters import initialization

# After this many steps the membership of an unseen client hardly changes.
NUM_FITTING_STEPS = 50


class Posterior(NamedTuple):
  """Posterior of the components given the examples.

  Attributes:
    responsibilities: Posterior probability of each component given an example,
      `[num_components, capacity]` float32; columns sum to 1.
    losses: -log sum_s membership_s exp(-loss_s) of each example, `[capacity]`.
  """

  responsibilities: tf.Tensor
  losses: tf.Tensor


def posterior(losses: tf.Tensor, membership: tf.Tensor) -> Posterior:
  """Returns the E-step: responsibilities ~ membership * exp(-loss).

  By log-sum-exp, because the exponentials of large losses underflow.

  Args:
    losses: Negative log-likelihoods, `[num_components, capacity]`, from
      `assignment.cluster_losses`.
    membership: `[num_components]`, on the simplex; a component of membership 0
      has responsibility 0.

  Returns:
    The posterior; NaN where an example has a finite loss under no component of
    membership > 0, and the client's result is then rejected.
  """
  # Differences first: added to a large loss, a logarithm is rounded away.
  lowest = tf.reduce_min(losses, axis=0)
  log_joint = tf.math.log(membership)[:, tf.newaxis] - (losses - lowest)
  log_evidence = tf.reduce_logsumexp(log_joint, axis=0)
  return Posterior(tf.exp(log_joint - log_evidence), lowest - log_evidence)


def mean_responsibilities(
  responsibilities: tf.Tensor, mask: tf.Tensor, otherwise: tf.Tensor
) -> tf.Tensor:
  """Returns the M-step's membership: the mean over the real examples.

  Args:
    responsibilities: `[num_components, capacity]`.
    mask: `[capacity]`.
    otherwise: Membership of a client without examples, `[num_components]`.
  """
  mean = statistics.weighted_mean(responsibilities, mask)
  return tf.where(mean.weight > 0, mean.total / mean.weight, otherwise)


def fit_membership(losses: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
  """Returns the maximum-likelihood membership of the real examples.

  By expectation maximization from equal memberships, with frozen components:
  the likelihood never decreases, and its logarithm is concave in the
  membership.

  Args:
    losses: Negative log-likelihoods, `[num_components, capacity]`.
    mask: `[capacity]`; without a real example memberships stay equal.

  Returns:
    `[num_components]`, on the simplex.
  """
  num_components = losses.shape[0]

  def step(i, membership):
    found = posterior(losses, membership)
    return i + 1, mean_responsibilities(
      found.responsibilities, mask, otherwise=membership
    )

  start = (tf.constant(0), tf.fill([num_components], 1 / num_components))  # pyright: ignore[reportOperatorIssue]
  return tf.while_loop(
    lambda i, _: i < NUM_FITTING_STEPS, step, start, parallel_iterations=1
  )[1]


def mix_probabilities(
  model: model_lib.Model, outputs: tf.Tensor, membership: tf.Tensor
) -> tf.Tensor:
  """Returns log sum_s membership_s softmax(outputs_s): logits of the mixture.

  In regression, the mixture of the predictions themselves.

  Args:
    model: The component model.
    outputs: `[num_components, batch, ..., num_outputs]`.
    membership: `[num_components]`, on the simplex.
  """
  if model.task == model_lib.REGRESSION:
    return tf.tensordot(membership, outputs, axes=1)
  log_shares = tf.reshape(
    tf.math.log(membership), [-1] + [1] * (outputs.shape.rank - 1)
  )
  return tf.reduce_logsumexp(log_shares + tf.nn.log_softmax(outputs), axis=0)


def mixture_of_outputs(
  model: model_lib.Model, num_components: int
) -> model_lib.Model:
  """Returns the mixture model of several models' predictions.

  Its weights are `canonical`, the components' weights `[num_components, ...]`,
  and `membership`, `[num_components]` float32, on the simplex. It predicts
  sum_s membership_s softmax(logits_s(x)), whose logarithms are its logits, or
  in regression sum_s membership_s prediction_s(x). It is initialized with
  independent draws of the components and equal memberships.

  Args:
    model: The component model.
    num_components: Number of components, >= 1.
  """

  def initialize(seed):
    return OrderedDict(
      canonical=initialization.cluster_models(model, num_components, seed),
      membership=tf.fill([num_components], 1 / num_components),
    )

  def apply(weights, x):
    outputs = model.map_stacked(
      lambda component: model.apply(component, x), weights['canonical']
    )
    return mix_probabilities(model, outputs, weights['membership'])

  return dataclasses.replace(
    model,
    name=f'mixture_of_{num_components}_{model.name}',
    initialize=initialize,
    apply=apply,
  )
