"""A phase whose sums over clients are clipped and noised.

A client's contribution is its update, the upload minus the model from which the
server counts it, times its weight: for a cluster mean once for each cluster.
All fields and clusters together are clipped to one L2 norm, so a client that
belongs to several clusters adds no more than any other. The server adds
Gaussian noise to the sums; what follows is the phase's own server update.

A cluster mean is divided by the noisy sum of the clients' weights, which lie in
the L2 unit ball; a mean of all clients by their expected number. The result of
a client that is not finite is zeros (`rounds.composer`), which is a
contribution of norm 0.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.core.structures import Leaf, Structure
from tff_algos.numerics import index_random, trees
from tff_algos.privacy import mechanism, releases, tree_noise
from tff_algos.rounds import aggregation, composer

# Beyond the numbers by which initial weights derive their seeds.
_NOISE = 1 << 20


class SampledInput(NamedTuple):
  """A client's input, and whether it was sampled.

  Attributes:
    takes_part: bool `[]`; False for the client of a phase call that stands for
      an empty cohort, whose release is noise alone.
    client_input: Client input of the phase's own plan.
  """

  takes_part: Any
  client_input: Structure


class PrivateMessage(NamedTuple):
  """What is broadcast.

  Attributes:
    message: Message of the phase itself.
    clip_norm: The present clipping norm, float32 `[]`.
  """

  message: Any
  clip_norm: Any


class PrivateState(NamedTuple):
  """Server state beside the algorithm's.

  Attributes:
    clip_norm: C, float32 `[]`.
    num_releases: Releases so far, int32 `[]`; the accountant and the seeds of
      the noise count by it.
    noise_seed: Seed of the noise and cohorts of all releases, int32 `[2]`; in
      the state, as a graph may serve runs of several seeds. The difference of
      two releases with the same noise would disclose single clients, so it
      follows from seed, data and options of the run, and from those of the run
      that it continues.
  """

  clip_norm: Any
  num_releases: Any
  noise_seed: Any


def initial_state(
  config: mechanism.PrivacyConfig, seed: Leaf, run: str
) -> PrivateState:
  """Returns the state before the first release.

  Args:
    config: Options.
    seed: Seed of the initial server state, int32 `[2]`.
    run: Name of the run's data and options.
  """
  return PrivateState(
    tf.constant(config.clip_norm, tf.float32),
    tf.constant(0),
    _derive(seed, [_NOISE, *seeds.derive_seed(0, run)]),
  )


def continued_state(
  config: mechanism.PrivacyConfig, before: PrivateState, initial: PrivateState
) -> PrivateState:
  """Returns the state of a run that continues another one, NumPy.

  Noise and cohorts are its own, also if several runs continue the same one. An
  unfinished epoch ends, and is accounted as a whole one.

  Args:
    config: Options.
    before: State of the other run, NumPy.
    initial: The run's own initial state.
  """
  rest = -before.num_releases % max(config.rounds_per_epoch, 1)
  numbers = [*before.noise_seed, before.num_releases]
  return PrivateState(
    before.clip_norm,
    np.int32(before.num_releases + rest),
    _derive(initial.noise_seed, numbers).numpy(),
  )


def _derive(seed: Leaf, numbers: Iterable[int]) -> tf.Tensor:
  return functools.reduce(index_random.derive_secret, numbers, seed)


def without_metrics(phase: algorithm_lib.Phase) -> algorithm_lib.Phase:
  """Returns the phase without the clients' metrics, which would leave them."""

  def work(message, client_input, client_state, data, seed):
    output = phase.client_work(message, client_input, client_state, data, seed)
    return output._replace(metrics=OrderedDict())

  return phase._replace(client_work=work)


def make_private(
  phase: algorithm_lib.Phase,
  fields: Mapping[str, releases.Summed],
  config: mechanism.PrivacyConfig,
  expected_clients: float,
) -> algorithm_lib.Phase:
  """Returns the phase on `ExtendedState` with `PrivateState` and noisy sums.

  Its client input is a `SampledInput`. Clients upload no metrics.

  Args:
    phase: The phase; message of a cluster mean of models: the cluster models.
    fields: Summed fields, each with a mean as its aggregator.
    config: Clipping and noise.
    expected_clients: Clients of a round on average, > 0: sampling probability
      times number of clients, or that number over `rounds_per_epoch`.
  """
  clusters = {
    field
    for field in fields
    if isinstance(phase.aggregation[field], aggregation.ClusterMean)
  }
  adaptive = config.adaptive_clipping
  is_adaptive = adaptive.target_quantile > 0
  noise = mechanism.split(config, bool(clusters))

  summing = ('sums', *('counts',) * bool(clusters), *('below',) * is_adaptive)

  def start_of(message, client_input, result, field):
    """Returns the model from which the server counts an update."""
    return phase.uploads[field](message, client_input, result)

  def starts_of_clusters(message, like, field):
    """Returns `start_of` clients of one cluster alone, `[num_clusters, ...]`.

    FedSoft's clients start from a mixture, but each cluster counts the update
    from its own model, as the mean of the uploads does.
    """
    weight_field = phase.aggregation[field].weight_field
    num_clusters = tf.nest.flatten(message)[0].shape[0]
    found = [
      start_of(
        message,
        fields[field].input_of(member),
        {field: like, weight_field: member},
        field,
      )
      for member in tf.unstack(tf.eye(num_clusters))
    ]
    return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *found)

  def work(message, given, client_state, data, seed):
    takes_part, client_input = given
    message, clip_norm = message
    output = phase.client_work(message, client_input, client_state, data, seed)
    result = composer.as_fields(output.result)
    sums, counts = OrderedDict(), OrderedDict()
    for field in fields:
      weights = result[phase.aggregation[field].weight_field]
      if field in clusters:
        counts[field] = weights / tf.maximum(tf.norm(weights), 1.0)
        start = starts_of_clusters(message, result[field], field)
        moved = trees.subtract(result[field], start)
        sums[field] = trees.scale_rows(moved, counts[field])
      else:
        start = start_of(message, client_input, result, field)
        moved = trees.subtract(result[field], start)
        sums[field] = trees.scale(moved, tf.cast(weights > 0, tf.float32))
    _check_not_empty(phase.name, sums)
    norm = tf.sqrt(trees.squared_norm(sums))
    share = tf.cast(takes_part, tf.float32)
    uploaded = OrderedDict(
      sums=trees.scale(sums, share * clip_norm / tf.maximum(norm, clip_norm))
    )
    if clusters:
      uploaded['counts'] = trees.scale(counts, share)
    if is_adaptive:
      # A client without examples has no norm; the server counts it nowhere.
      has_norm = tf.cast(tf.reduce_any(data.mask > 0), tf.float32)
      is_below = tf.where(norm <= clip_norm, 0.5, -0.5)
      uploaded['below'] = share * has_norm * is_below
    uploaded.update(
      (field, result[field])
      for field in phase.aggregation
      if field not in fields
    )
    state = trees.select(takes_part, output.client_state, client_state)
    return algorithm_lib.ClientOutput(uploaded, state, OrderedDict())

  def server_update(state, aggregates):
    own, (clip_norm, num_releases, _) = state
    deviations = noise._replace(contributions=noise.contributions * clip_norm)
    noisy = _add_noise(
      OrderedDict((name, aggregates[name]) for name in summing),
      dict(zip(('sums', 'counts', 'below'), deviations, strict=True)),
      functools.partial(_draw, state.extra, config.rounds_per_epoch),
    )
    message = phase.make_message(own)
    released = dict(aggregates)
    for field in fields:
      total = noisy['sums'][field]
      if field in clusters:
        start = starts_of_clusters(message, trees.take(total, 0), field)
        released[field] = _cluster_means(
          total, start, noisy['counts'][field], config.min_count
        )
      else:
        mean = trees.scale(total, 1 / expected_clients)
        released[field] = aggregation.Mean(
          trees.add(start_of(message, None, noisy['sums'], field), mean),
          tf.constant(expected_clients, tf.float32),
        )
    own, metrics = phase.server_update(own, released)
    if is_adaptive:
      below = noisy['below'] / expected_clients + 0.5
      clip_norm *= tf.exp(
        -adaptive.learning_rate
        * (tf.clip_by_value(below, 0.0, 1.0) - adaptive.target_quantile)
      )
      clip_norm = tf.clip_by_value(clip_norm, *mechanism.CLIP_NORMS)
      metrics = OrderedDict(metrics, clip_norm=clip_norm)
    extra = state.extra._replace(
      clip_norm=clip_norm, num_releases=num_releases + 1
    )
    return state._replace(server_state=own, extra=extra), metrics

  return phase._replace(
    make_message=lambda state: PrivateMessage(
      phase.make_message(state.server_state), state.extra.clip_norm
    ),
    client_work=work,
    aggregation=OrderedDict(
      [(name, aggregation.Sum()) for name in summing]
      + [
        (field, aggregator)
        for field, aggregator in phase.aggregation.items()
        if field not in fields
      ]
    ),
    server_update=server_update,
    client_input=SampledInput(tf.TensorSpec([], tf.bool), phase.client_input),
    uploads={},
  )


def _check_not_empty(phase_name: str, sums: Structure) -> None:
  """Raises ConfigError if the summed fields have no entries."""
  if not tf.nest.flatten(sums):
    raise releases.nothing_summed(f'phase {phase_name!r} with these options')


def _add_noise(
  parts: Mapping[str, Structure],
  deviations: Mapping[str, Any],
  draw: Callable[[int], tf.Tensor],
) -> dict[str, Structure]:
  """Returns the parts with noise of each part's deviation.

  Args:
    parts: Sums of contributions.
    deviations: Part -> standard deviation.
    draw: Number of entries -> noise of deviation 1.
  """
  drawn = trees.unflatten(draw(trees.num_entries(parts)), parts)
  return {
    name: trees.add(part, trees.scale(drawn[name], deviations[name]))
    for name, part in parts.items()
  }


def _draw(state: PrivateState, rounds_per_epoch: int, size: int) -> tf.Tensor:
  """Returns the noise of the next release, `[size]`."""
  if rounds_per_epoch:
    return tree_noise.draw(
      state.noise_seed, state.num_releases, rounds_per_epoch, size
    )
  seed = index_random.derive_secret(state.noise_seed, state.num_releases)
  return tf.random.stateless_normal([size], seed)


def _cluster_means(
  total: Structure, starts: Structure, counts: tf.Tensor, min_count: float
) -> aggregation.Mean:
  """Returns each cluster's mean from its noisy sum and count.

  A cluster of fewer than `min_count` clients has weight 0, as if it were empty.
  """
  divisors = tf.maximum(counts, 1.0)
  return aggregation.Mean(
    trees.add(starts, trees.scale_rows(total, 1 / divisors)),
    tf.where(counts >= min_count, divisors, 0.0),
  )
