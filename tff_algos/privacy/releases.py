"""What clients upload and receive, field by field, and its treatment.

The server is trusted, as in DP-FedAvg (McMahan, Ramage, Talwar and Zhang,
"Learning Differentially Private Recurrent Language Models" (ICLR 2018),
arXiv:1710.06963): private is what it sends to clients and publishes. A field
that the server uses for the same client alone stays between the two; a client's
personalized model is then a function of its own data and of private releases
(joint differential privacy, by the billboard lemma).

A client receives the broadcast, which follows from releases, and a client input
of its own data alone: an input computed from other clients' data would change
the contributions of all clients if one joins, and clipping bounds only those of
the client that joins.

An algorithm whose fields are not all declared here is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.algorithms.fed_soft import center_download
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.rounds import aggregation, composer


class Summed(NamedTuple):
  """A field that is averaged: clipped, summed and noised.

  Attributes:
    how: Its treatment beyond that, for the documentation.
    input_of: one-hot membership `[num_clusters]` -> client input of a client of
      that cluster alone; for a cluster mean.
  """

  how: str = ''
  input_of: Callable[[tf.Tensor], Structure] = lambda member: ()


class Own(NamedTuple):
  """A field that is uploaded for, or computed from, the same client alone.

  Attributes:
    how: What it is read for, or computed from.
  """

  how: str


class Replaced(NamedTuple):
  """A field of the client input in whose place another one is sent.

  Attributes:
    by: The other field.
    why: Why it is not sent.
  """

  by: str
  why: str


class Refused(NamedTuple):
  """A field that cannot be clipped and noised; its algorithm is refused.

  Attributes:
    why: How it reaches others without, or what comes of it.
    instead: What to set instead; empty if nothing helps.
  """

  why: str
  instead: str = ''


Treatment = Summed | Own | Refused

_MEAN = Summed('every client has weight 1')
_START = Refused(
  'starts of cluster models are chosen by losses, and means of few clients',
  "set algorithm.initialization.mode to 'random'",
)
_PENALTY = Refused(
  'the gradient of the penalty that a client receives is computed from the '
  'memberships of others',
  'set algorithm.laplacian.weight to 0',
)
_MEASUREMENT = Refused(
  'a measurement over all clients, without noise',
  'set algorithm.stationarity_interval to 0',
)
_PEER = Refused('clients receive the models of other clients')
_CORRECTIONS = Refused(
  'each client sums up its changes as they are, and the server what clipping '
  'and noise leave of them, so the two part, and rounds correct for a drift '
  'that is none'
)
_K_MEANS = Refused(
  'clusters are computed from single uploads, whose assignment no noise of a '
  'mean covers'
)
_SHARE = Refused(
  "it is the client's share of the examples, or of the number, of all clients",
  "set algorithm.membership.gradient_weight to 'none'",
)

# algorithm -> phase.field -> treatment, or that of all its fields.
RELEASES: dict[str, Mapping[str, Treatment] | Refused] = {
  'brain_torrent': _PEER,
  'cfl': _K_MEANS,
  'cmfl': Refused('the committee scores and selects single uploads'),
  'ditto': {'train.local_weights': _MEAN},
  'fed_avg': {'train.local_weights': _MEAN},
  'fed_dc': _CORRECTIONS,
  'fed_dyn': _CORRECTIONS,
  'fed_em': {
    'train.local_models': _MEAN,
    'seed_centers.local_weights': _START,
    'seed_losses.loss': _START,
  },
  'fed_pac': Refused(
    'class centroids, heads and moments of single clients determine the heads '
    'of others'
  ),
  'fed_soft': {
    'train.local_weights': Summed(
      'weights are the importance weights, scaled into the unit ball; counts '
      'are noised',
      input_of=lambda member: center_download.TrainInput(member, member),
    ),
    'estimate_importance.importance_weights': Own(
      "weights of the client's own contribution and proximal term; all clients "
      "train (selection 'weighted_full'), so they decide on no one's sampling"
    ),
  },
  'filter_decomposition': Refused('its rounds have not been analysed'),
  'fine_tuning': {'train.local_weights': _MEAN},
  'gossip': _PEER,
  'ifca': {
    'train.local_result': Summed(
      "the client's choice is its weight, one-hot; counts are noised"
    ),
    'seed_centers.local_weights': _START,
    'seed_losses.loss': _START,
  },
  'l2gd': {'train.local_weights': _MEAN},
  'partial_fed_avg': {'train.shared_weights': _MEAN},
  'per_fed_avg': {'train.local_weights': _MEAN},
  'pfedkm': _K_MEANS,
  'pfedme': {'train.local_weights': _MEAN},
  'ppfl': {
    'joint.local_weights': _MEAN,
    'shared.local_weights': _MEAN,
    'joint.membership': _PENALTY,
    'membership.membership': _PENALTY,
    'membership.membership_gradient': Refused(
      'the server keeps the memberships, and may pull them together',
      "set algorithm.schedule to 'alternating' or 'shared_first'",
    ),
    'count_labels.label_counts': Refused(
      'affinities of clients follow from their label counts; `count_noise` '
      'protects a label, not a client',
      'set algorithm.laplacian.weight to 0',
    ),
    **{
      f'stationarity.{field}': _MEASUREMENT
      for field in ('gradient', 'loss', 'squared_mapping_norm')
    },
  },
  'scaffold': _CORRECTIONS,
}

# algorithm -> phase.field of the client input -> treatment.
RECEIVED: dict[str, Mapping[str, Own | Replaced | Refused]] = {
  'fed_soft': {
    'train.importance_weights': Own("the client's own estimate"),
    'train.cluster_weights': Replaced(
      'importance_weights',
      "a client's share of the importance of all clients",
    ),
    'train.pull': Refused(
      'a client needs all cluster models to compute its updates of them',
      "set algorithm.download to 'all_centers'",
    ),
  },
  'pfedme': {
    'train.counts': Own('1, as every client that is drawn contributes')
  },
  'ppfl': {
    'joint.client_weight': _SHARE,
    'membership.client_weight': _SHARE,
  },
}


def private_inputs(name: str, call: algorithm_lib.PhaseCall) -> Structure:
  """Returns a call's client inputs as a private algorithm sends them."""
  inputs = call.client_inputs
  for key, treatment in RECEIVED.get(name, {}).items():
    phase, field = key.split('.')
    if phase == call.purpose and isinstance(treatment, Replaced):
      inputs = inputs._replace(**{field: getattr(inputs, treatment.by)})
  return inputs


def summed_fields(
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> dict[str, dict[str, Summed]]:
  """Returns phase -> summed field -> its treatment, of phases that have any.

  Raises:
    ConfigError: If a field of the algorithm cannot be clipped and noised, or is
      not declared; or if clients receive one that is computed from others.
  """
  found: dict[str, dict[str, Summed]] = {}
  for name, phase in algorithm.phases.items():
    for field, aggregator in phase.aggregation.items():
      treatment = _treatment(algorithm.name, phase, field, aggregator)
      if isinstance(treatment, Summed):
        found.setdefault(name, {})[field] = treatment
  if not found:
    raise nothing_summed(f'algorithm {algorithm.name!r}')
  for phase in algorithm.phases.values():
    purpose = algorithm_lib.phase_purpose(phase.name)
    for field in composer.as_fields(phase.client_input):
      _declared(
        RECEIVED, algorithm.name, f'{purpose}.{field}', 'is sent to clients'
      )
  return found


def nothing_summed(what: str) -> errors.ConfigError:
  """Returns the error for an algorithm or a phase without sums."""
  return errors.ConfigError(
    f'privacy: {what} sums no field over its clients, so there is nothing to '
    'add noise to; set privacy.noise_multiplier and privacy.target_epsilon to 0'
  )


def _treatment(
  name: str, phase: algorithm_lib.Phase, field: str, aggregator: object
) -> Treatment:
  key = f'{algorithm_lib.phase_purpose(phase.name)}.{field}'
  treatment = _declared(RELEASES, name, key, 'is sent by clients')
  means = aggregation.WeightedMean | aggregation.ClusterMean
  if isinstance(treatment, Summed) and not isinstance(aggregator, means):
    raise errors.ConfigError(
      f'privacy: {key} of algorithm {name!r} is collected client by client, as '
      'robust aggregation rules need it, and no noise of a sum covers that; '
      "set algorithm.aggregation.rule to 'mean' and "
      'mixes_nearest_neighbors to False'
    )
  return treatment


def _declared(
  declarations: Mapping[str, Mapping[str, Any] | Refused],
  name: str,
  key: str,
  direction: str,
) -> Any:
  """Returns the treatment of a field of an algorithm.

  Raises:
    ConfigError: If there is none, or it is `Refused`.
  """
  found = declarations.get(name, {})
  treatment = found if isinstance(found, Refused) else found.get(key)
  if treatment is None:
    raise errors.ConfigError(
      f'privacy: algorithm {name!r} does not declare what becomes of {key!r}, '
      f'which {direction}; declare it in tff_algos/privacy/releases.py, or '
      'train without privacy'
    )
  if isinstance(treatment, Refused):
    raise errors.ConfigError(
      f'privacy: algorithm {name!r} with these options cannot be private: '
      f'{key} {direction}, and {treatment.why}; '
      f'{treatment.instead or "choose another algorithm (docs/privacy.md)"}'
    )
  return treatment
