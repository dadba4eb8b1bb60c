"""Who a committee averages and elects: CMFL's arithmetic of attackers.

Che, Li, Chen, He and Zheng (arXiv 2108.00365): the score of Eq. 7 and 8, the
strategies of selection and election (section 4.2) and their limits when attackers
are all ranked last, as a good committee has them, or all first, as one of
attackers has them. `sizes`, `select`, `elect` and `mean_distances` of
stages.committee against counting in NumPy.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.cmfl import committee
from tff_algos.core import seeds
from tff_algos.stages.server import client_sampling

_MOST_CLIENTS = 100
_PLACES = np.arange(_MOST_CLIENTS)


def _windows(num_training, sizes):
  """Returns which places of a ranking are elected, bool `[cases, clients]`.

  Clients stand in the order of their rank; those behind `num_training` are no
  training clients. One graph for all cases, which is quicker.
  """

  def elect(case):
    return committee.elect(
      tf.constant(_PLACES, tf.float64),
      _PLACES < case[0],
      case[1],
      committee.CommitteeConfig(),
    )

  return _map(elect, (num_training, sizes))


def _tops(num_training, num_selected):
  """Returns which places of a ranking strategy I averages, as `_windows`."""

  def select(case):
    return committee.select(
      tf.constant(_PLACES, tf.float64),
      _PLACES < case[0],
      case[1],
      committee.CommitteeConfig(selection='most_similar'),
      tf.constant([0, 0]),
      tf.constant(_PLACES, tf.int32),
    )

  return _map(select, (num_training, num_selected))


def _map(choose, cases):
  mapped = tf.function(
    lambda cases: tf.map_fn(choose, cases, fn_output_signature=tf.bool)
  )
  return mapped(tuple(tf.constant(case, tf.int32) for case in cases)).numpy()


def test_attackers_in_every_middle_window():
  """All 1 <= C <= n < 40, and any number of attackers.

  With s = floor((n - C) / 2) places before the window there are n - C - s behind
  it. What is elected depends on the number of attackers and hardly on whether
  the committee ranks them last or, being of attackers itself, first.
  """
  cases = [(n, size) for n in range(1, 40) for size in range(1, n + 1)]
  for (n, size), padded in zip(
    cases, _windows(*np.transpose(cases)), strict=True
  ):
    window = padded[:n]
    first = (n - size) // 2
    np.testing.assert_array_equal(
      np.flatnonzero(window), first + np.arange(size)
    )
    counts = np.arange(n + 1)
    # In the last, and in the first, 0 to n places.
    last = np.append(0, np.cumsum(window[::-1]))
    foremost = np.append(0, np.cumsum(window))
    np.testing.assert_array_equal(
      last, np.clip(counts - (n - size - first), 0, size)
    )
    np.testing.assert_array_equal(foremost, np.clip(counts - first, 0, size))
    assert abs(last - foremost).max() <= (n - size) % 2


@pytest.mark.parametrize(
  ('committee_rate', 'shares'),
  [
    (0.1, [0, 0, 0, 0, 0.5]),
    (0.2, [0, 0, 0, 0.10, 0.5]),
    (0.3, [0, 0, 0.03, 0.27, 0.5]),
    (0.4, [0, 0.05, 0.20, 0.35, 0.5]),
    (0.5, [0.1, 0.2, 0.3, 0.4, 0.5]),
  ],
)
def test_share_of_attackers_on_the_next_committee(committee_rate, shares):
  """omega = 10 to 50 %, 10 to 50 % attackers among 100 active clients."""
  sizes = committee.sizes(
    100,
    committee.CommitteeConfig(active_rate=1.0, committee_rate=committee_rate),
  )
  n, size = sizes.training, sizes.committee
  (window,) = _windows([n], [size])
  for tenths, share in enumerate(shares, 1):
    num_attackers = n * tenths // 10
    found = window[n - num_attackers : n].sum(), window[:num_attackers].sum()
    np.testing.assert_allclose(np.divide(found, size), share, atol=0.026)


@pytest.mark.parametrize('base', committee.BASES)
def test_attackers_are_averaged_beyond_a_cliff(base):
  """Strategy I with attackers ranked last averages m - (n - attackers) of them.

  In shares: some iff alpha > (1 - omega) (1 - epsilon) of all active clients, or
  alpha + epsilon > 1 of the training ones. All 405 cells have whole numbers of
  clients, so the comparison is one of integers.
  """
  cells = list(itertools.product(range(1, 6), range(1, 10), range(1, 10)))
  sizes = [
    committee.sizes(
      _MOST_CLIENTS,
      committee.CommitteeConfig(1.0, omega / 10, alpha / 10, base),
    )
    for omega, alpha, _ in cells
  ]
  chosen = _tops(
    [one.training for one in sizes], [one.aggregated for one in sizes]
  )
  for (omega, alpha, epsilon), one, top in zip(
    cells, sizes, chosen, strict=True
  ):
    n, num_honest = one.training, one.training * (10 - epsilon) // 10
    averaged = top[num_honest:n].sum()
    assert averaged == max(0, one.aggregated - num_honest)
    if base == 'active':
      beyond = 10 * alpha > (10 - omega) * (10 - epsilon)
    else:
      beyond = alpha + epsilon > 10
    assert (averaged > 0) == beyond


def _simplex(num_attackers, d, d_attackers, away):
  """Returns 10 members, an honest client and an attacker, `[12, 13]`.

  The honest are at the distance d of each other, attackers at `d_attackers`;
  between the two it is D, D^2 = (d^2 + d_attackers^2) / 2 + away^2.
  """
  is_attacker = np.append(np.arange(10) < num_attackers, [False, True])
  corners = np.diag(np.where(is_attacker, d_attackers, d) / np.sqrt(2))
  return np.column_stack([corners, away * is_attacker])


def _last_two(points):
  """Returns the mean distances of the last two rows, `[cases, 2]`."""

  def distances(case):
    is_member = tf.constant([True] * 10 + [False] * 2)
    return committee.mean_distances((case,), is_member, 'squared')[-2:]

  return tf.function(lambda cases: tf.map_fn(distances, cases))(
    tf.constant(np.array(points), tf.float64)
  ).numpy()


def test_score_breaks_where_attackers_on_the_committee_prevail():
  """Honest clients are nearer iff (1 - 2q) D^2 > (1 - q) d^2 - q d_attackers^2.

  q is the share of attackers on the committee. Attackers that agree (0) prevail
  with fewer than half of it, those that are scattered need more.
  """
  cases = list(
    itertools.product(range(11), (0.5, 1.0), (0.0, 0.7, 2.0), (0.1, 0.6, 1.5))
  )
  found = _last_two([_simplex(*case) for case in cases])
  outcomes = set()
  for (num, d, d_attackers, away), (honest, attacker) in zip(
    cases, found, strict=True
  ):
    q, squared = num / 10, (d**2 + d_attackers**2) / 2 + away**2
    margin = (1 - 2 * q) * squared - ((1 - q) * d**2 - q * d_attackers**2)
    np.testing.assert_allclose(honest, (1 - q) * d**2 + q * squared)
    np.testing.assert_allclose(
      attacker, (1 - q) * squared + q * d_attackers**2, atol=1e-12
    )
    np.testing.assert_allclose(attacker - honest, margin, atol=1e-12)
    outcomes.add((num < 5, bool(margin > 1e-12)))
  # With fewer than half, and with more, both happen.
  assert len(outcomes) == 4


def test_opposite_signs_prevail_with_half_of_the_committee():
  """Updates e_1 M + e_k d / sqrt(2), and those times -1: D^2 = 4 M^2 + d^2."""
  mean, d = 0.4, 1.5
  updates = np.column_stack([np.eye(12) * d / np.sqrt(2), np.full(12, mean)])
  is_attacker = np.arange(12) < np.arange(11)[:, np.newaxis]
  is_attacker[:, -2:] = False, True
  signs = np.where(is_attacker, -1, 1)[:, :, np.newaxis]
  honest, attacker = _last_two(signs * updates).T
  shares = np.arange(11) / 10
  np.testing.assert_allclose(
    attacker - honest, (1 - 2 * shares) * 4 * mean**2, atol=1e-12
  )


def test_counts_of_uniform_draws():
  """43 of 1,075 clients, 1,000 rounds: 40 times each, on the mean.

  Counts are binomial, of variance 1000 * 0.04 * 0.96 = 38.4. The variance over
  1,075 clients deviates by 38.4 * sqrt(2 / 1074) = 1.7; five deviations are
  allowed, so other seeds fail once in two million times. Nobody is left out: 40
  is 6.5 deviations from 0.
  """
  counts = np.zeros(1075)
  for round_num in range(1000):
    generator = seeds.numpy_generator(0, 'cohort', round_num)
    counts[client_sampling.draw_uniform(np.arange(1075), 43, generator)] += 1
  assert counts.mean() == 40
  assert abs(counts.var() - 38.4) < 5 * 38.4 * np.sqrt(2 / 1074)
  assert counts.min() > 0
