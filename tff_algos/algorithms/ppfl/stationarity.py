"""Stationarity measure of PPFL's objective in model weights and memberships.

Di et al., arXiv:2310.14337, Sec. 3.2: |grad_theta F(theta, C)|^2 + sum_i
|(c_i - c_i+) / eta|_1^2, where c_i+ is the mirror step with the full gradient,
and without a floor. The norm of the second part is summed over clients, as in
the paper's proofs. It is 0 where the gradient in theta is 0 and no mirror step
changes a c_i.

It measures F as printed, with p_i and the Laplacian: with another weight of the
membership's gradient, or form 'degree', rounds may converge to other points.
"""

from collections import OrderedDict

import tensorflow as tf

from tff_algos.algorithms.ppfl import (
  affinity,
  membership_descent,
  membership_exchange,
)
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.numerics import statistics, trees
from tff_algos.rounds import aggregation
from tff_algos.stages.client import gradients, objectives


def build_measurement(
  exchange: membership_exchange.MembershipExchange, loss_scale: float
) -> algorithm_lib.Phase:
  """Returns the phase `stationarity`, which changes no state.

  A client passes over its examples once, forward and backward, and uploads a
  gradient as large as the model weights and two numbers. Clients whose values
  are not finite are missing in the sums, and counted as invalid by the round;
  so are, uncounted, those that are not available (`Simulation.run_round`).

  The server state is a NamedTuple with the fields `model_weights`; and, with a
  penalty, `membership` and `affinity_features`. Its server metrics:
  `objective`, the F that PPFL minimises; `squared_gradient_norm`,
  `squared_mapping_norm`, and their sum, `squared_stationarity`.

  Args:
    exchange: The model, the penalty, the rate eta of the mirror step.
    loss_scale: Factor on the loss, > 0.
  """
  mixture, laplacian = exchange.mixture, exchange.laplacian
  rate = exchange.membership.learning_rate

  def measure(model_weights, client_input, client_state, data, seed):
    del seed
    membership = exchange.membership_of(client_input, client_state)
    weight = client_input['client_weight']
    data = algorithm_lib.ClientData(data.x, data.y, data.mask)

    def loss(variables, batch):
      model_weights, membership = variables
      objective = objectives.mean_loss(mixture.at(membership), loss_scale)
      return objective(model_weights, batch)

    (slope, slope_in_membership), losses = gradients.gradient(
      loss, (model_weights, membership), data
    )
    model = mixture.model
    total, count = statistics.weighted_mean(
      losses, model.loss_weights(data.y, data.mask)
    )
    stepped = membership_descent.entropic_step(
      membership,
      weight * slope_in_membership + client_input.get('penalty_gradient', 0.0),
      rate,
      floor=0.0,
    )
    result = OrderedDict(
      gradient=trees.scale(slope, weight),
      loss=weight * loss_scale * total / tf.maximum(count, 1.0),
      squared_mapping_norm=membership_descent.squared_mapping_norm(
        membership, stepped, rate
      ),
    )
    return algorithm_lib.ClientOutput(result, client_state, OrderedDict())

  def report(server_state, aggregates):
    objective = aggregates['loss']
    if laplacian.weight:
      objective += laplacian.weight * affinity.disagreement(
        server_state.affinity_features, server_state.membership
      )
    in_weights = trees.squared_norm(aggregates['gradient'])
    in_memberships = aggregates['squared_mapping_norm']
    return server_state, OrderedDict(
      objective=objective,
      squared_gradient_norm=in_weights,
      squared_mapping_norm=in_memberships,
      squared_stationarity=in_weights + in_memberships,
    )

  fields = ('gradient', 'loss', 'squared_mapping_norm')
  return algorithm_lib.Phase(
    name='stationarity',
    make_message=lambda server_state: server_state.model_weights,
    client_work=measure,
    aggregation={field: aggregation.Sum() for field in fields},
    server_update=report,
    client_input=exchange.client_input('stationarity'),
    uses_client_state=not exchange.at_server,
    # Sums over some of the clients are not the objective's.
    has_dropout=False,
  )
