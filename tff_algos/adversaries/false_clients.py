"""Attacks of single clients on their own updates or labels; see `attacks`."""

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.adversaries import falsification, flipped_data
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees
from tff_algos.rounds import composer, plans

LABEL_FLIP = 'label_flip'
# name -> (update, seed int32 `[2]`, `attacks.AttackConfig`) -> false update.
ATTACKS = {
  'scaling': lambda update, seed, config: falsification.scale_entries(
    update, seed, config.minimum_scale
  ),
  'zero': lambda update, seed, config: trees.zeros_like(update),
  'sign_flip': lambda update, seed, config: trees.scale(update, -1.0),
  'gaussian_noise': lambda update, seed, config: falsification.add_noise(
    update, seed, config.noise_deviation
  ),
}


class MarkedInput(NamedTuple):
  """A client's input, and whether the client attacks.

  Attributes:
    is_attacker: bool `[]`.
    client_input: Client input of the phase's own plan.
  """

  is_attacker: Any
  client_input: Structure


def build(
  algorithm: algorithm_lib.FederatedAlgorithm,
  attacked: Mapping[str, algorithm_lib.Phase],
  config: Any,
  is_attacker: np.ndarray,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm with clients that falsify their updates or labels.

  Args:
    algorithm: The attacked algorithm.
    attacked: The attacked phases of the algorithm.
    config: `attacks.AttackConfig`.
    is_attacker: bool `[num_clients]`.
  """
  model = algorithm.cluster_model
  falsified = {
    name: _falsify(phase, config, model) for name, phase in attacked.items()
  }

  def mark(call):
    if call.phase not in falsified:
      return call
    flags = is_attacker[call.client_indices]
    return dataclasses.replace(
      call, client_inputs=MarkedInput(flags, call.client_inputs)
    )

  def plan_round(server_state, population, round_num, seed):
    plan = algorithm.plan_round(server_state, population, round_num, seed)
    yield from plans.map_calls(plan, mark)

  return dataclasses.replace(
    algorithm,
    phases={**algorithm.phases, **falsified},
    plan_round=plan_round,
  )


def num_averaged(
  phase: algorithm_lib.Phase, client_input: Any, mask: tf.Tensor
) -> tf.Tensor:
  """Returns how many examples a client has in the server's means, `[]`.

  A client without examples, or one that is not drawn, is in no mean.

  Args:
    phase: The phase without an attack.
    client_input: The client's input of that phase.
    mask: Mask of the client's examples, `[capacity]`.
  """
  count = tf.reduce_sum(mask)
  if isinstance(phase.client_input, plans.Contribution):
    count *= client_input.counts
  return count


def _falsify(
  phase: algorithm_lib.Phase, config: Any, model: model_lib.Model
) -> algorithm_lib.Phase:
  """Returns the phase with `MarkedInput`, falsified at marked clients."""

  def work(message, client_input, client_state, data, seed):
    is_attacker, client_input = client_input
    if config.name == LABEL_FLIP:
      data = flipped_data.FlippedData(data, is_attacker, model)
    output = phase.client_work(message, client_input, client_state, data, seed)  # pyright: ignore[reportArgumentType]
    result = composer.as_fields(output.result)
    metrics = OrderedDict(output.metrics)
    if not phase.uploads:
      return output
    state = output.client_state
    honest = {
      field: result[field] if field in result else getattr(state, field)
      for field in phase.uploads
    }
    starts = {
      field: start_of(message, client_input, result)
      for field, start_of in phase.uploads.items()
    }
    sent = honest
    if config.name != LABEL_FLIP:
      # All fields at once: each entry has draws of its own.
      false = _false_uploads(honest, starts, seed, config)
      sent = trees.select(is_attacker, false, honest)
    for field, upload in sent.items():
      if field in result:
        result[field] = upload
      else:
        state = state._replace(**{field: upload})
    norm = tf.sqrt(trees.squared_norm(trees.subtract(sent, starts)))
    count = num_averaged(phase, client_input, data.mask)
    metrics.update(_measure(is_attacker, norm, count))
    return algorithm_lib.ClientOutput(result, state, metrics)

  return phase._replace(
    client_work=work,
    client_input=MarkedInput(tf.TensorSpec([], tf.bool), phase.client_input),
  )


def _false_uploads(honest, starts, seed, config):
  attack = ATTACKS[config.name]
  if config.space == 'model':
    return attack(honest, seed, config)
  update = attack(trees.subtract(honest, starts), seed, config)
  return trees.add(starts, update)


def _measure(is_attacker, norm, count):
  """Returns the metrics of one client."""
  attacks = tf.cast(is_attacker, tf.float32)
  contributes = tf.cast(count > 0, tf.float32)
  honest, false = contributes * (1 - attacks), contributes * attacks
  return {
    'attack/share': statistics.MeanStat(attacks, tf.ones([])),
    'attack/honest_norm': statistics.MeanStat(honest * norm, honest),
    'attack/false_norm': statistics.MeanStat(false * norm, false),
  }
