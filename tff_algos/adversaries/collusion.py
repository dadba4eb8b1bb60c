"""Colluding attacks, which use the cohort's honest updates; see `attacks`.

All attackers of a phase call send the same false update, each added to its own
starting point, or in space `'model'` the same false model.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.adversaries import false_clients, falsification
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, collected_means, composer

_STARTS = 'attack_starts'
_COUNT = 'attack_count'


def _alie(rows, num_false, config):
  num_deviations = config.num_deviations
  if not num_deviations:
    num_honest = tf.reduce_sum(tf.cast(rows.is_honest, tf.int32))
    num_deviations = falsification.hidden_deviations(
      num_honest + num_false, num_false
    )
  return falsification.little_is_enough(rows, num_deviations)


# name -> (`HonestRows`, number of attackers int32 `[]`, `attacks.AttackConfig`)
# -> the false update.
ATTACKS = {
  'alie': _alie,
  'ipm': lambda rows, num_false, config: (
    falsification.inner_product_manipulation(rows, config.ipm_factor)
  ),
  'min_max': lambda rows, num_false, config: falsification.min_max(
    rows, config.perturbation
  ),
  'min_sum': lambda rows, num_false, config: falsification.min_sum(
    rows, config.perturbation
  ),
  'committee_aware': lambda rows, num_false, config: (
    falsification.committee_aware(
      rows, config.perturbation, config.accepted_share
    )
  ),
}


def collude(
  phase: algorithm_lib.Phase, config: Any, is_attacker: np.ndarray
) -> algorithm_lib.Phase:
  """Returns the phase with the attackers' uploads replaced at the server.

  The server holds the cohort's uploads and their starting points.

  Args:
    phase: A phase with `uploads` among the fields of its result.
    config: `attacks.AttackConfig`.
    is_attacker: bool `[num_clients]`.

  Raises:
    ConfigError: If an upload is not sent to the server.
  """
  for field in phase.uploads:
    if field not in phase.aggregation:
      raise errors.ConfigError(
        f'attack.name is {config.name!r}, which uses the updates of the '
        f'whole cohort, but phase {phase.name!r} does not send {field!r} to '
        'the server; choose an attack of single clients'
      )
  collecting = collected_means.collect_means(phase)

  def work(message, client_input, client_state, data, seed):
    output = phase.client_work(message, client_input, client_state, data, seed)
    result = composer.as_fields(output.result)
    starts = OrderedDict(
      (field, start_of(message, client_input, result))
      for field, start_of in phase.uploads.items()
    )
    count = false_clients.num_averaged(phase, client_input, data.mask)
    sent = {_STARTS: starts, _COUNT: count}
    return output._replace(result=OrderedDict(result, **sent))

  def server_update(server_state, aggregates):
    aggregates = dict(aggregates)
    starts = aggregates.pop(_STARTS)
    false, metrics = _falsify(
      {field: aggregates[field].values for field in phase.uploads},
      starts,
      tf.gather(tf.constant(is_attacker), starts.client_index),
      (aggregates.pop(_COUNT).values > 0) | ~starts.is_valid,
      config,
    )
    for field, values in false.items():
      aggregates[field] = aggregates[field]._replace(values=values)
    state, own_metrics = collecting.server_update(server_state, aggregates)
    return state, OrderedDict(own_metrics, **metrics)

  return collecting._replace(
    client_work=work,
    aggregation=OrderedDict(
      collecting.aggregation,
      **dict.fromkeys((_STARTS, _COUNT), aggregation.Collect()),
    ),
    server_update=server_update,
  )


def _falsify(uploads, starts, attacks, contributes, config):
  """Returns the uploads with those of attackers replaced, and the metrics."""
  uploads = OrderedDict((field, uploads[field]) for field in starts.values)
  updates = trees.subtract(uploads, starts.values)
  is_false = starts.is_valid & contributes & attacks
  is_honest = starts.is_valid & contributes & ~attacks
  num_false = tf.reduce_sum(tf.cast(is_false, tf.int32))
  rows = falsification.HonestRows(
    uploads if config.space == 'model' else updates, is_honest
  )
  update = ATTACKS[config.name](rows, num_false, config)
  sent = tf.nest.map_structure(
    lambda leaf, start: leaf + (0 if config.space == 'model' else start),
    update,
    starts.values,
  )
  # Without honest updates in the cohort, the attack is undefined.
  is_replaced = is_false & tf.reduce_any(is_honest)
  num_rows = tf.shape(attacks)[0]
  sent = tf.nest.map_structure(
    lambda leaf, like: tf.broadcast_to(leaf, tf.shape(like)), sent, uploads
  )
  sent = trees.select_rows(is_replaced, sent, uploads)
  norms = tf.sqrt(
    trees.squared_row_norms(trees.subtract(sent, starts.values), num_rows)
  )
  return sent, {
    'attack/share': _mean(tf.cast(attacks, tf.float32), contributes),
    'attack/honest_norm': _mean(norms, is_honest),
    'attack/false_norm': _mean(norms, is_false),
  }


def _mean(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
  """Returns the mean of the chosen values; NaN if there are none."""
  chosen = tf.cast(chosen, tf.float32)
  return tf.reduce_sum(chosen * values) / tf.reduce_sum(chosen)
