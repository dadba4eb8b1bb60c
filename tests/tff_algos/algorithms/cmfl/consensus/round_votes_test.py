import numpy as np
import pytest

from tff_algos.algorithms.cmfl.consensus import (
  agreement,
  ballot,
  round_votes,
  statements,
)
from tff_algos.core import errors

_IDS = [f'c{i}' for i in range(12)]
_MEMBERS = np.array([1, 4, 7, 9, 11])
_ROUND = round_votes.Round(
  3,
  np.arange(12) < 2,
  np.arange(12) >= 10,
  {'kernel': np.ones([2, 3], np.float32)},
)


def _vote(members=_MEMBERS, seed=0, **options):
  config = round_votes.ConsensusConfig(**options)
  return round_votes.vote(members, _ROUND, _IDS, config, seed)


def test_honest_members_need_one_view_for_each_vote():
  """Two votes of five members: 3 * 4 messages each."""
  outcome = _vote()
  assert outcome.is_accepted
  assert (outcome.num_views, outcome.num_messages) == (2, 24)
  np.testing.assert_allclose(outcome.seconds, 0.06)
  assert outcome.num_bytes > 24 * 100


def test_members_vote_on_the_selection_with_its_result_and_the_election(
  monkeypatch,
):
  seen, agree = [], agreement.agree

  def record(opened, proposals, **options):
    seen.append((opened.instance, {*proposals.values()}))
    return agree(opened, proposals, **options)

  monkeypatch.setattr(agreement, 'agree', record)
  _vote()
  model = statements.digest_arrays(_ROUND.result)
  assert seen == [
    ('round 3, selection', {statements.state(['c0', 'c1'], model)}),
    ('round 3, election', {statements.state(['c10', 'c11'])}),
  ]


def test_a_round_is_accepted_if_both_votes_are():
  """With one view a vote fails if its primary is silent, as one of five is.

  Who that is follows from the seed of the run, primaries from that of the round.
  """
  config = round_votes.ConsensusConfig(
    max_views=1, malicious_fraction=1 / 12, behaviour='silent'
  )
  (silent,) = round_votes.malicious_clients(_IDS, config, 5)
  members = np.array([_IDS.index(silent), *_MEMBERS[:4]])
  committee = tuple(_IDS[i] for i in members)
  ends = set()
  for seed in range(30):
    fails = tuple(
      ballot.Ballot(committee, f'round 3, {name}', seed).primary(0) == silent
      for name in ('selection', 'election')
    )
    outcome = round_votes.vote(members, _ROUND, _IDS, config, seed, run_seed=5)
    assert outcome.is_accepted == (not any(fails))
    ends.add(fails)
  assert {(True, False), (False, True), (False, False)} <= ends


def test_the_same_vote_ends_the_same():
  options = {'malicious_fraction': 0.2, 'behaviour': 'forging'}
  assert _vote(**options) == _vote(**options)


def test_agreement_can_be_assumed():
  assert _vote(protocol='assumed') == (True, 2, 0, 0, 0.0, 5)


@pytest.mark.parametrize('behaviour', ['lying', 'silent'])
def test_what_nobody_computed_is_never_accepted(behaviour):
  outcome = _vote(malicious_fraction=1.0, behaviour=behaviour, max_views=3)
  assert not outcome.is_accepted


def test_one_liar_of_five_costs_views_at_most():
  """Five members bear one fault."""
  for seed in range(20):
    config = round_votes.ConsensusConfig(malicious_fraction=1 / 12)
    (liar,) = round_votes.malicious_clients(_IDS, config, seed)
    others = [i for i in range(12) if _IDS[i] != liar][:4]
    members = np.array([*others, _IDS.index(liar)])
    outcome = round_votes.vote(members, _ROUND, _IDS, config, seed)
    assert outcome.is_accepted


def test_a_warning_says_whether_waiting_may_help():
  outcome = _vote(malicious_fraction=1.0, behaviour='silent', max_views=1)
  said = round_votes.disagreement(_MEMBERS, outcome)
  assert '0 of its members are honest and 4 votes are needed' in said
  outcome = outcome._replace(num_honest=4)
  assert 'max_views may help' in round_votes.disagreement(_MEMBERS, outcome)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'protocol': 'pbft'}, 'protocol'),
    ({'malicious_fraction': 1.5}, 'malicious_fraction'),
    ({'behaviour': 'rude'}, 'behaviour'),
    ({'protocol': 'assumed', 'malicious_fraction': 0.1}, 'has no votes; set'),
    ({'max_views': 0}, 'max_views'),
  ],
)
def test_options_out_of_range(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    round_votes.ConsensusConfig(**options)
