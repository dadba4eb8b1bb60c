"""Latent clients: cross-paired coefficients and atoms (section 5.1).

The mean of m clients' coefficients times that of their atoms is a mean of m
real kernels and m^2 - m latent ones (Chen and Qiu 2025, section 5.1). This
module builds and scores latent clients. It needs every single client's factors,
which the server of a real federation need not receive: a diagnostic of
simulations.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.filter_decomposition import filter_groups
from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.numerics import factored_weights, trees
from tff_algos.rounds import aggregation


class Scores(NamedTuple):
  """Losses and scores of latent clients.

  Attributes:
    loss: Mean loss of each, `[n]`.
    score: Mean score of each, `[n]`: the accuracy, or the squared error.
  """

  loss: np.ndarray
  score: np.ndarray


def collect_models(phase: algorithm.Phase) -> algorithm.Phase:
  """Returns the phase with its clients' models collected.

  Its server metrics are the `Collected` models, `local_weights`; no state
  changes.

  Args:
    phase: Uploads `local_weights`, or all weights in parts named `local_...`.
      The phase's name, and so the clients' seeds, are unchanged.
  """
  fields = [field for field in phase.aggregation if field.startswith('local_')]

  def keep_old_state(message, client_input, client_state, data, seed):
    output = phase.client_work(message, client_input, client_state, data, seed)
    return output._replace(client_state=client_state)

  def keep_models(server_state, aggregates):
    parts = [aggregates[field] for field in fields]
    values = {
      name: leaf for part in parts for name, leaf in part.values.items()
    }
    whole = filter_groups.take(values, server_state.model_weights)
    return server_state, {'local_weights': parts[0]._replace(values=whole)}

  return phase._replace(
    client_work=keep_old_state,
    aggregation=dict.fromkeys(fields, aggregation.Collect()),
    server_update=keep_models,
  )


def draw_pairs(
  num_clients: int, num_pairs: int, generator: np.random.Generator
) -> np.ndarray:
  """Samples distinct latent clients, int32 `[num_pairs, 2]`.

  A row is (owner of the coefficients, owner of the atoms).

  Args:
    num_clients: m, >= 1.
    num_pairs: At most m^2 - m; more are all of them.
    generator: Source of randomness.
  """
  count = num_clients * (num_clients - 1)
  chosen = generator.choice(count, min(num_pairs, count), replace=False)
  first, step = np.divmod(np.sort(chosen), max(num_clients - 1, 1))
  # The second client, as an offset to the first on a ring of all clients.
  second = (first + 1 + step) % max(num_clients, 1)
  return np.stack([first, second], axis=1).astype(np.int32)


def latent_weights(
  stacked: model_lib.Weights, coefficients_of: int, atoms_of: int
) -> model_lib.Weights:
  """Returns a latent client's model: atoms of one client, all else of another.

  Args:
    stacked: Clients' models, `[num_clients, ...]`.
    coefficients_of: Client of the coefficients, head and all other weights.
    atoms_of: Client of the atoms.
  """
  atoms = [f'{one}/atoms' for one in factored_weights.factored_layers(stacked)]
  theirs = filter_groups.take(stacked, atoms)
  return filter_groups.put(
    trees.take(stacked, coefficients_of), trees.take(theirs, atoms_of)
  )


def score(
  model: model_lib.Model,
  stacked: model_lib.Weights,
  pairs: np.ndarray,
  examples: Mapping[str, np.ndarray],
) -> Scores:
  """Returns the mean loss and score of latent clients on some examples.

  Args:
    model: Of decomposed convolutions.
    stacked: Clients' models after training, `[num_clients, ...]`.
    pairs: As of `draw_pairs`.
    examples: `x` and `y`, at least one.
  """
  x, y = tf.constant(examples['x']), tf.constant(examples['y'])

  @tf.function(autograph=False)
  def means(weights):
    outputs = model.apply(weights, x)
    return (
      tf.reduce_mean(model.example_losses(outputs, y)),
      tf.reduce_mean(model.example_scores(outputs, y)),
    )

  rows = [
    [float(one) for one in means(latent_weights(stacked, *pair))]
    for pair in pairs.tolist()
  ]
  loss, scores = np.array(rows, np.float64).reshape(-1, 2).T
  return Scores(loss, scores)
