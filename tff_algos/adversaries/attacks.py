"""Byzantine clients: choice of the attackers, and attacks on any algorithm.

An attack belongs to the experiment, not to the algorithm: `attack` takes any
algorithm whose phases declare their uploads (`Phase.uploads`) and returns it
with clients that falsify them, on every runtime. The state that an attacker
keeps, such as its personalized model, is the result of honest client work;
with label flipping, it is trained on the flipped labels.

Attacks that use the attacker's own update alone are computed at the client.
Attacks that use the cohort's updates are computed at the server, before the
aggregation.
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
from tff_algos.rounds import aggregation

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
  """Options of an attack: its name, the attackers, its parameters.

  Attributes:
    name: `'none'`; `'label_flip'` trains on the label num_classes - 1 - y, of
      the classes without padding; `'scaling'` multiplies each entry by a
      uniform number from [`minimum_scale`, 1); `'zero'`, `'sign_flip'`;
      `'gaussian_noise'` of deviation `noise_deviation`; or, from the honest
      updates of the cohort, `'alie'`, `'ipm'`, `'min_max'`, `'min_sum'`,
      `'committee_aware'`, see `adversaries.falsification`.
    fraction: Share of all clients that attack, rounded down, drawn once from
      the run's seed, in [0, 1).
    client_ids: Ids of the attackers, in place of a random share.
    space: Falsified quantity: the `'update'`, a client's model minus its
      starting point, or the whole `'model'`; the same where clients upload
      updates.
    minimum_scale: For `'scaling'`, in [0, 1).
    noise_deviation: For `'gaussian_noise'`, > 0.
    num_deviations: For `'alie'`: standard deviations from the mean, >= 0; 0 for
      the largest undetected number by Baruch et al.
    ipm_factor: For `'ipm'`: the mean times minus this factor is sent, > 0.
    perturbation: For `'min_max'`, `'min_sum'` and `'committee_aware'`: `'std'`,
      `'unit'` or `'sign'`.
    accepted_share: For `'committee_aware'`: the share of honest updates that
      the rule accepts, in (0, 1].
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
    checks.check_share('accepted_share', self.accepted_share)
    checks.check_one_of(
      'perturbation', self.perturbation, falsification.PERTURBATIONS
    )
    if self.name == NONE:
      return
    if bool(self.client_ids) == bool(self.fraction):
      raise errors.ConfigError(
        f'attack.name is {self.name!r}, with fraction {self.fraction:g} and '
        f'{len(self.client_ids)} client_ids; set exactly one of the two to '
        'choose the attackers'
      )

  def identity(self) -> Mapping[str, object]:
    """Returns the config entries that affect training state."""
    if self.name == NONE:
      return {}
    return {'attack': config_lib.to_dict(self)}


def attackers(
  config: AttackConfig, client_ids: Sequence[str], seed: int
) -> np.ndarray:
  """Returns which clients attack, bool `[num_clients]`.

  For one seed the attackers are the same for all algorithms and attacks.

  Args:
    config: The attack.
    client_ids: Ids of the population.
    seed: The run's own seed, not that of a restart.

  Raises:
    ConfigError: If a listed client does not exist, or the share is empty.
  """
  is_attacker = np.zeros(len(client_ids), bool)
  if config.name == NONE:
    return is_attacker
  for client_id in config.client_ids:
    if client_id not in client_ids:
      raise errors.ConfigError(
        f'attack.client_ids names {client_id!r}, an unknown client id; the '
        f'{len(client_ids)} known ids are such as {client_ids[0]!r}'
      )
    is_attacker[client_ids.index(client_id)] = True
  is_attacker |= malicious.draw(client_ids, config.fraction, seed)
  if not is_attacker.any():
    raise errors.ConfigError(
      f'attack.fraction {config.fraction:g} of {len(client_ids)} clients is '
      "less than one client; raise it, or set attack.name to 'none'"
    )
  return is_attacker


def attack(
  algorithm: algorithm_lib.FederatedAlgorithm,
  config: AttackConfig,
  is_attacker: np.ndarray,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm with Byzantine clients.

  Adds metrics to each phase with uploads: `attack/share` of its cohort, and
  mean norms of updates, `attack/honest_norm` and `attack/false_norm`.

  Args:
    algorithm: The attacked algorithm; returned unchanged if the attack is
      `'none'`.
    config: The attack.
    is_attacker: From `attackers`.

  Raises:
    ConfigError: If the algorithm does not declare its uploads, the attack does
      not apply to it, or it has factories of `tff.aggregators`; call `attack`
      before `with_aggregators`.
  """
  if config.name == NONE:
    return algorithm
  aggregation.refuse_processes(algorithm.phases, 'an attack')
  attacked = {
    name: phase for name, phase in algorithm.phases.items() if phase.uploads
  }
  if not attacked:
    raise errors.ConfigError(
      f'attack.name is {config.name!r}, but algorithm {algorithm.name!r} does '
      "not declare its uploads; set attack.name to 'none'"
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
