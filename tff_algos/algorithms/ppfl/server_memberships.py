"""Mirror steps on memberships at the server.

Di et al., arXiv:2310.14337, Algorithm 1, block C: clients upload gradients of
their memberships (Algorithm 2), and the server steps on all of them.
"""

from collections import OrderedDict

import tensorflow as tf

from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
  mirror_descent,
)
from tff_algos.core import algorithm
from tff_algos.rounds import aggregation


def build_step(
  traffic: membership_exchange.Traffic, loss_scale: float
) -> algorithm.Phase:
  """Returns the phase `membership`, one step on the cohort's memberships.

  The server state is a NamedTuple with the fields `model_weights`, `membership`
  and `affinity_features`. Who takes no part keeps its membership.

  Args:
    traffic: The model, the penalty, and how memberships move.
    loss_scale: Factor on the loss, > 0.
  """
  config, laplacian = traffic.membership, traffic.laplacian

  def work(model_weights, client_input, client_state, data, seed):
    slope, loss = membership_descent.gradient(
      traffic.mixture,
      model_weights,
      traffic.membership_of(client_input, client_state),
      data,
      seed,
      config,
      loss_scale,
    )
    weight = client_input.get('client_weight', 1.0)
    return algorithm.ClientOutput(
      OrderedDict(membership_gradient=weight * slope),
      client_state,
      OrderedDict(membership_loss=loss),
    )

  def step(server_state, aggregates):
    slopes, table = aggregates['membership_gradient'], server_state.membership
    gradient = slopes.values
    if laplacian.weight:
      pulls = affinity.penalty_gradients(
        laplacian, server_state.affinity_features, table
      )
      gradient += tf.gather(pulls, slopes.client_index)
    stepped = mirror_descent.entropic_step(
      tf.gather(table, slopes.client_index),
      gradient,
      config.learning_rate,
      config.floor,
    )
    table = aggregation.write_rows(table, slopes._replace(values=stepped))
    return server_state._replace(membership=table), OrderedDict()

  return algorithm.Phase(
    name='membership',
    make_message=lambda server_state: server_state.model_weights,
    client_work=work,
    aggregation={'membership_gradient': aggregation.Collect()},
    server_update=step,
    client_input=traffic.client_input('membership'),
    uses_client_state=False,
  )
