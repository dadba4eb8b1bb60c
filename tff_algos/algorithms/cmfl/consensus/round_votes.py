"""The two votes of a round: on selection and model, and on the election.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), Algorithm 1.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from tff_algos.adversaries import malicious
from tff_algos.algorithms.cmfl.consensus import (
  agreement,
  behaviours,
  quorum,
  statements,
)
from tff_algos.algorithms.cmfl.consensus import ballot as ballot_lib
from tff_algos.core import checks, errors


@dataclasses.dataclass(frozen=True)
class ConsensusConfig(ballot_lib.Limits):
  """Options of the protocol and of malicious members, besides `Limits`.

  Attributes:
    protocol: `'simulated'`, message by message, or `'assumed'`: members, none
      of them malicious, agree without messages, as in the authors' runs.
    malicious_fraction: Share of all clients that are malicious as members of a
      committee, in [0, 1], rounded down and drawn once per run. Clients that
      falsify uploads with the same fraction are the same clients.
    behaviour: Behaviour of malicious members, one of `behaviours.NAMES`.
  """

  protocol: str = 'simulated'
  malicious_fraction: float = 0.0
  behaviour: str = 'lying'

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of('protocol', self.protocol, ('simulated', 'assumed'))
    checks.check_fraction('malicious_fraction', self.malicious_fraction)
    checks.check_one_of('behaviour', self.behaviour, behaviours.NAMES)
    if self.protocol == 'assumed' and self.malicious_fraction:
      raise errors.ConfigError(
        f'consensus.malicious_fraction is {self.malicious_fraction:g}, but '
        "protocol 'assumed' has no votes; set protocol to 'simulated'"
      )


class Round(NamedTuple):
  """Results of a round, as computed by honest committee members.

  Attributes:
    number: Number of the round, >= 1.
    is_selected: Selected clients, bool `[num_clients]`.
    is_elected: The next committee, bool `[num_clients]`.
    result: The new global model, name -> array.
  """

  number: int
  is_selected: np.ndarray
  is_elected: np.ndarray
  result: Mapping[str, np.ndarray]


class Outcome(NamedTuple):
  """Outcome of both votes; numbers are sums over them.

  Attributes:
    is_accepted: Whether both votes accepted the statement of the honest
      members. If not, the update is skipped.
    num_views: Number of views.
    num_messages: Number of sent messages.
    num_bytes: Size of the messages.
    seconds: Duration on the virtual clock, one vote after the other.
    num_honest: Number of honest members.
  """

  is_accepted: bool
  num_views: int
  num_messages: int
  num_bytes: int
  seconds: float
  num_honest: int


def vote(
  members: np.ndarray,
  computed: Round,
  client_ids: Sequence[str],
  config: ConsensusConfig,
  seed: int,
  run_seed: int | None = None,
) -> Outcome:
  """Runs both votes of a committee on a round.

  Args:
    members: Committee members, positions in the population, at least one.
    computed: The results of the round.
    client_ids: Ids of the whole population, some of which are malicious.
    config: Options of the protocol.
    seed: Seed of the draws of primaries, and of keys.
    run_seed: Seed of the draw of malicious members; None for `seed`. A run's
      restarts differ in `seed` alone.
  """
  if config.protocol == 'assumed':
    return Outcome(True, 2, 0, 0, 0.0, len(members))
  committee = tuple(client_ids[int(i)] for i in members)
  malicious = malicious_clients(
    client_ids, config, seed if run_seed is None else run_seed
  )
  ends = []
  for name, statement in (
    (
      'selection',
      statements.state(
        _ids(client_ids, computed.is_selected),
        statements.digest_arrays(computed.result),
      ),
    ),
    ('election', statements.state(_ids(client_ids, computed.is_elected))),
  ):
    end = agreement.agree(
      ballot_lib.Ballot(
        committee,
        f'round {computed.number}, {name}',
        seed,
        config,
      ),
      dict.fromkeys(committee, statement),
      behaviours=dict.fromkeys(malicious & {*committee}, config.behaviour),
    )
    ends.append((end.value == statement, end))
  return Outcome(
    is_accepted=all(is_accepted for is_accepted, _ in ends),
    num_views=sum(end.num_views for _, end in ends),
    num_messages=sum(end.num_messages for _, end in ends),
    num_bytes=sum(end.num_bytes for _, end in ends),
    seconds=sum(end.seconds for _, end in ends),
    num_honest=len({*committee} - malicious),
  )


def _ids(client_ids: Sequence[str], flags: Any) -> list[str]:
  return [*itertools.compress(client_ids, np.asarray(flags))]


def warn(round_num: int, members: np.ndarray, outcome: Outcome) -> None:
  """Logs the warning about a committee that has not agreed."""
  logging.warning('Round %d: %s', round_num, disagreement(members, outcome))


def disagreement(members: np.ndarray, outcome: Outcome) -> str:
  """Returns a warning about a committee that has not agreed.

  Args:
    members: Of the committee.
    outcome: Of its votes.
  """
  needed = quorum.required_votes(len(members))
  said = (
    f'the committee of {len(members)} did not agree, so the model and the '
    'committee are unchanged. '
  )
  if outcome.num_honest < needed:
    return said + (
      f'{outcome.num_honest} of its members are honest and {needed} votes are '
      'needed, so it may never agree. Lower consensus.malicious_fraction, or '
      'take a larger committee.committee_rate or another seed'
    )
  return said + 'It votes again next round; more consensus.max_views may help'


def malicious_clients(
  client_ids: Sequence[str], config: ConsensusConfig, seed: int
) -> frozenset[str]:
  """Returns the clients that are malicious as members of a committee."""
  drawn = malicious.draw(client_ids, config.malicious_fraction, seed)
  return frozenset(itertools.compress(client_ids, drawn))
