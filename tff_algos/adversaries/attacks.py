"""Clients that lie: who they are, and what they do to a phase.

An attack belongs to an experiment and not to an algorithm: `attack` takes any
algorithm whose phases say what is uploaded (`Phase.uploads`) and returns it
with clients that send something else, on every runtime. What a liar keeps for
itself, such as its personalized model, stays what honest work made of it; but
one that flips labels has learned from them.

Attacks that change the own update alone happen at the client. The others look
at the updates of the cohort, so they happen where these are: at the server,
before anything is made of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tff_algos.adversaries import (
  collusion,
  false_clients,
  falsification,
  malicious,
)
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib

NONE = 'none'
SPACES = ('update', 'model')
NAMES = (
  NONE,
  false_clients.LABEL_FLIP,
  *false_clients.ATTACKS,
  *collusion.ATTACKS,
)


@dataclasses.dataclass(frozen=True)
class AttackConfig:
  """Who attacks, and how.

  Attributes:
    name: `'none'`; `'label_flip'` trains on the label num_classes - 1 - y;
      `'scaling'` multiplies each entry by a uniform number from
      [`minimum_scale`, 1); `'zero'`, `'sign_flip'`; `'gaussian_noise'` of
      deviation `noise_deviation`; or, from the honest updates of the cohort,
      `'alie'`, `'ipm'`, `'min_max'`, `'min_sum'`, `'committee_aware'`, see
      `numerics.falsification`.
    fraction: Share of all clients that attack, rounded down, drawn once from
      the run's seed, in [0, 1).
    client_ids: Who attacks, in place of a drawn share.
    space: What is falsified: the `'update'`, a client's model less the one that
      it started from, or the whole `'model'`.
    minimum_scale: Of `'scaling'`, in [0, 1).
    noise_deviation: Of `'gaussian_noise'`, > 0.
    num_deviations: Of `'alie'`: standard deviations from the mean, >= 0; 0 for
      as many as the majority hides, by Baruch et al.
    ipm_factor: Of `'ipm'`: -this times the mean is sent, > 0.
    perturbation: Of `'min_max'`, `'min_sum'` and `'committee_aware'`: `'std'`,
      `'unit'` or `'sign'`.
    accepted_share: Of `'committee_aware'`: the share of honest updates that the
      rule accepts, in (0, 1].
  """

  name: str = NONE
  fraction: float = 0.0
  client_ids: tuple[str, ...] = ()
  space: str = 'update'
  minimum_scale: float = 0.5
  noise_deviation: float = 1.0
  num_deviations: float = 0.0
  ipm_factor: float = 0.5
  perturbation: str = 'std'
  accepted_share: float = 0.4

  def __post_init__(self):
    checks.check_one_of('name', self.name, NAMES)
    checks.check_below_one('fraction', self.fraction)
    checks.check_one_of('space', self.space, SPACES)
    checks.check_below_one('minimum_scale', self.minimum_scale)
    checks.check_positive('noise_deviation', self.noise_deviation)
    checks.check_at_least('num_deviations', self.num_deviations, 0)
    checks.check_positive('ipm_factor', self.ipm_factor)
    checks.check_positive('accepted_share', self.accepted_share)
    checks.check_fraction('accepted_share', self.accepted_share)
    checks.check_one_of(
      'perturbation', self.perturbation, falsification.PERTURBATIONS
    )
    if self.name == NONE:
      return
    if bool(self.client_ids) == bool(self.fraction):
      raise errors.ConfigError(
        f'attack.name is {self.name!r}, with fraction {self.fraction:g} and '
        f'{len(self.client_ids)} client_ids; say who attacks by exactly one of '
        'the two'
      )

  def identity(self) -> Mapping[str, object]:
    """Returns what of it decides the states of every round."""
    if self.name == NONE:
      return {}
    return {'attack': config_lib.to_dict(self)}


def attackers(
  config: AttackConfig, client_ids: Sequence[str], seed: int
) -> np.ndarray:
  """Returns who attacks, bool `[num_clients]`.

  With one seed they are the same whatever the algorithm and the attack.

  Args:
    config: The attack.
    client_ids: Of the population.
    seed: The run's, that of no restart.

  Raises:
    ConfigError: If a listed client does not exist, or the share is nobody.
  """
  is_attacker = np.zeros(len(client_ids), bool)
  if config.name == NONE:
    return is_attacker
  for client_id in config.client_ids:
    if client_id not in client_ids:
      raise errors.ConfigError(
        f'attack.client_ids names {client_id!r}, who is none of the '
        f'{len(client_ids)} clients, such as {client_ids[0]!r}'
      )
    is_attacker[client_ids.index(client_id)] = True
  is_attacker |= malicious.draw(client_ids, config.fraction, seed)
  if not is_attacker.any():
    raise errors.ConfigError(
      f'attack.fraction {config.fraction:g} of {len(client_ids)} clients is '
      "nobody; raise it, or set attack.name to 'none'"
    )
  return is_attacker


def attack(
  algorithm: algorithm_lib.FederatedAlgorithm,
  config: AttackConfig,
  is_attacker: np.ndarray,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm with clients that lie in it.

  Adds to the metrics of each phase that uploads something: `attack/share` of
  its cohort, and mean norms of updates, `attack/honest_norm` and
  `attack/false_norm`.

  Args:
    algorithm: What is attacked; returned as it is if the attack is `'none'`.
    config: The attack.
    is_attacker: Of `attackers`.

  Raises:
    ConfigError: If the algorithm does not say what is uploaded, or the attack
      does not fit it.
  """
  if config.name == NONE:
    return algorithm
  attacked = {
    name: phase for name, phase in algorithm.phases.items() if phase.uploads
  }
  if not attacked:
    raise errors.ConfigError(
      f'attack.name is {config.name!r}, but algorithm {algorithm.name!r} does '
      "not say what its clients upload; set attack.name to 'none'"
    )
  if config.name in collusion.ATTACKS:
    falsified = {
      name: collusion.collude(phase, config, is_attacker)
      for name, phase in attacked.items()
    }
    return dataclasses.replace(
      algorithm, phases={**algorithm.phases, **falsified}
    )
  model = algorithm.cluster_model
  if config.name == false_clients.LABEL_FLIP:
    attacked = algorithm.phases
    if model.task != model_lib.CLASSIFICATION:
      raise errors.ConfigError(
        f'attack.name is {config.name!r}, but model {model.name!r} is for '
        'regression, without labels to flip; choose another attack'
      )
  return false_clients.build(algorithm, attacked, config, is_attacker)
