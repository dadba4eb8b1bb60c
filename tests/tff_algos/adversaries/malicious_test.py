import numpy as np

from tff_algos.adversaries import attacks, malicious
from tff_algos.algorithms.cmfl.consensus import round_votes

_IDS = tuple(f'c{i:03d}' for i in range(30))


def test_a_share_is_rounded_down_and_of_the_seed():
  drawn = malicious.draw(_IDS, 0.1, 0)
  assert drawn.sum() == 3
  np.testing.assert_array_equal(drawn, malicious.draw(_IDS, 0.1, 0))
  assert (drawn != malicious.draw(_IDS, 0.1, 1)).any()
  assert not malicious.draw(_IDS, 0.0, 0).any()
  assert malicious.draw(_IDS, 1.0, 0).all()


def test_a_share_of_a_whole_number_is_that_number():
  """0.29 times 100 is just below 29."""
  ids = tuple(map(str, range(100)))
  assert malicious.draw(ids, 0.29, 0).sum() == 29
  assert malicious.draw(ids, 0.295, 0).sum() == 29


def test_every_client_is_as_likely_to_attack():
  """3 of 30 for 1,000 seeds: counts of mean 100 and deviation 9.5; five of
  them for 30 clients leave a false alarm in 10^4.
  """
  counts = np.zeros(30)
  for seed in range(1000):
    counts += malicious.draw(_IDS, 0.1, seed)
  assert np.abs(counts - 100).max() < 48


def test_attackers_and_malicious_members_are_the_same_clients():
  """One draw: if one of the two drew for itself, seeds would tell.

  Whatever the attack.
  """
  for seed, name in enumerate(attacks.NAMES[1:]):
    drawn = malicious.draw(_IDS, 0.25, seed)
    uploading = attacks.attackers(
      attacks.AttackConfig(name, fraction=0.25), _IDS, seed
    )
    members = round_votes.malicious_clients(
      _IDS, round_votes.ConsensusConfig(malicious_fraction=0.25), seed
    )
    np.testing.assert_array_equal(uploading, drawn)
    assert members == {_IDS[i] for i in np.flatnonzero(drawn)}
