import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.cmfl import committee
from tff_algos.core import errors
from tff_algos.numerics import gram


def _uploads(values):
  """A model of two weights: one matrix and one vector."""
  values = np.asarray(values, np.float32)
  return {
    'kernel': tf.constant(values[:, :-1].reshape(len(values), -1, 1)),
    'bias': tf.constant(values[:, -1:]),
  }


def _squared(values, members):
  """Eq. 8 pair by pair, in float64."""
  values = np.asarray(values, np.float32).astype(np.float64)
  pairs = ((values[:, None] - values[members]) ** 2).sum(axis=-1)
  return pairs.mean(axis=1)


def test_distances_of_a_hand_made_case():
  """Training clients (0, 0), (3, 0); members (0, 1), (0, -1)."""
  found = committee.mean_distances(
    _uploads([[0, 0], [3, 0], [0, 1], [0, -1]]),
    tf.constant([False, False, True, True]),
    'squared',
  )
  np.testing.assert_array_equal(found, [1, 10, 2, 2])


def test_distances_weight_by_weight_of_a_hand_made_case():
  """Weights kernel (2) and bias (1): |(3, 4)| + |1| = 6, |(0, 0)| + |2| = 2."""
  found = committee.mean_distances(
    _uploads([[3, 4, 1], [0, 0, 2], [0, 0, 0]]),
    tf.constant([False, False, True]),
    'sum_over_weights',
  )
  np.testing.assert_allclose(found, [6, 2, 0], atol=1e-12)


def test_distances_weight_by_weight_agree_with_numpy():
  """The mean over members of the sum over weights of norms, in float64."""
  generator = np.random.default_rng(2)
  values = generator.normal(size=(7, 5)).astype(np.float32)
  members = [1, 4, 6]
  found = committee.mean_distances(
    _uploads(values),
    tf.constant(np.isin(range(7), members)),
    'sum_over_weights',
  )
  expected = [
    np.mean(
      [
        np.linalg.norm(one[:-1] - values[m, :-1].astype(np.float64))
        + abs(one[-1] - np.float64(values[m, -1]))
        for m in members
      ]
    )
    for one in values.astype(np.float64)
  ]
  np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_equal_uploads_far_from_the_others_are_at_no_distance():
  """Not even by rounding: a member is 1e4 away from the mean of members."""
  same = np.array([1e4, 2e4, 3e4]) + np.random.default_rng(0).normal(size=3)
  found = committee.mean_distances(
    _uploads([same, same]), tf.constant([False, True]), 'sum_over_weights'
  )
  np.testing.assert_array_equal(found, [0, 0])
  found = committee.mean_distances(
    _uploads([same, same, [0, 0, 0]]),
    tf.constant([True, False, True]),
    'sum_over_weights',
  )
  assert found[0] == found[1]
  rounded = same.astype(np.float32).astype(np.float64)
  half = (np.hypot(*rounded[:2]) + abs(rounded[2])) / 2
  np.testing.assert_allclose(found[1], half, rtol=1e-12)


def test_the_mean_stands_for_all_pairs():
  """CMFL's score without its pairs: same numbers, same ranks."""
  generator = np.random.default_rng(0)
  for _ in range(50):
    values = generator.normal(size=(11, 12)) + 100 * generator.normal(size=12)
    members = np.sort(generator.permutation(11)[:4])
    is_member = np.isin(np.arange(11), members)
    found = committee.mean_distances(
      _uploads(values), tf.constant(is_member), 'squared'
    ).numpy()
    expected = _squared(values, members)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(found.argsort(), expected.argsort())


def test_long_uploads_are_read_block_by_block(monkeypatch):
  generator = np.random.default_rng(1)
  values = generator.normal(size=(5, 24))
  is_member = tf.constant([True, False, False, True, False])
  whole = [
    committee.mean_distances(_uploads(values), is_member, distance)
    for distance in committee.DISTANCES
  ]
  # Seven of each of the five uploads.
  monkeypatch.setattr(committee, '_BLOCK_ENTRIES', 35)
  monkeypatch.setattr(gram, '_BLOCK', 7)
  for distance, expected in zip(committee.DISTANCES, whole, strict=True):
    found = committee.mean_distances(_uploads(values), is_member, distance)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize('distance', committee.DISTANCES)
def test_a_committee_of_nobody_tells_nobody_apart(distance):
  found = committee.mean_distances(
    _uploads([[1, 2], [3, 4]]), tf.constant([False, False]), distance
  )
  np.testing.assert_array_equal(found, [0, 0])


def _select(distances, num_selected, is_training=None, seed=0, **options):
  distances = np.asarray(distances, np.float64)
  if is_training is None:
    is_training = np.ones(len(distances), bool)
  return np.flatnonzero(
    committee.select(
      tf.constant(distances),
      tf.constant(is_training),
      tf.constant(num_selected),
      committee.CommitteeConfig(**options),
      tf.constant([seed, 7]),
      tf.range(len(distances)),
    )
  ).tolist()


def test_both_strategies_of_selection():
  """Scores 5, 4, 3, 2, 1 and 40 %."""
  distances = 1 / np.array([5, 4, 3, 2, 1])
  assert _select(distances, 2, selection='most_similar') == [0, 1]
  assert _select(distances, 2, selection='least_similar') == [3, 4]
  assert _select(distances, 2, selection='all') == [0, 1, 2, 3, 4]


def test_members_are_never_selected_and_few_are_all_selected():
  distances, is_training = [0, 1, 2, 3], [False, True, True, False]
  for selection in ('most_similar', 'least_similar', 'random', 'all'):
    chosen = _select(distances, 3, is_training, selection=selection)
    assert chosen == [1, 2]


def test_random_selection_is_uniform_and_of_the_seed():
  """1,000 draws of 2 of 5: each 400 times, within 5 standard deviations."""
  draws = [_select([0] * 5, 2, seed=i, selection='random') for i in range(1000)]
  assert draws[3] == _select([0] * 5, 2, seed=3, selection='random')
  assert all(len(draw) == 2 for draw in draws)
  counts = np.bincount(np.concatenate(draws), minlength=5)
  assert (abs(counts - 400) < 5 * np.sqrt(1000 * 0.4 * 0.6)).all()


def _elect(num_training, committee_size, **options):
  """The places on the ranking that are elected, of clients in random order."""
  order = np.random.default_rng(num_training).permutation(num_training)
  elected = committee.elect(
    tf.constant(order, tf.float64),
    tf.ones([num_training], tf.bool),
    tf.constant(committee_size),
    committee.CommitteeConfig(**options),
  ).numpy()
  return np.sort(order[elected]).tolist()


def test_the_middle_is_elected():
  assert _elect(5, 1) == [2]
  assert _elect(65, 43) == list(range(11, 54))
  assert _elect(6, 3) == [1, 2, 3]
  assert _elect(4, 9) == [0, 1, 2, 3]


def test_another_window_can_be_elected():
  assert _elect(10, 4, election_center=0.0) == [0, 1, 2, 3]
  assert _elect(10, 4, election_center=1.0) == [6, 7, 8, 9]


@pytest.mark.parametrize(
  ('num_clients', 'base', 'expected'),
  [
    (3550, 'training', (142, 213, 85)),
    (3550, 'active', (142, 213, 142)),
    (1075, 'training', (43, 65, 26)),
    (1075, 'active', (43, 65, 43)),
    (772, 'training', (31, 46, 18)),
    (772, 'active', (31, 46, 30)),
    (143, 'training', (6, 9, 4)),
    (143, 'active', (6, 9, 5)),
  ],
)
def test_sizes_of_the_papers_populations(num_clients, base, expected):
  config = committee.CommitteeConfig(aggregation_base=base)
  assert committee.sizes(num_clients, config) == committee.Sizes(*expected)


def test_numbers_of_members_and_training_clients_are_the_active_ones():
  numbers = {'num_members': 43, 'num_training': 65}
  config = committee.CommitteeConfig(aggregation_base='active', **numbers)
  assert committee.sizes(1000, config) == committee.Sizes(43, 65, 43)


def test_sizes_of_the_smallest_populations():
  for num_clients in range(2, 30):
    for rate in (0.01, 0.3, 0.5):
      config = committee.CommitteeConfig(active_rate=1.0, committee_rate=rate)
      found = committee.sizes(num_clients, config)
      assert 1 <= found.committee <= found.training
      assert found.committee + found.training <= num_clients
      assert 1 <= found.aggregated <= found.training


def test_sizes_as_numbers_in_place_of_shares():
  """Of 20 clients the shares make 4 members, 6 training, 2 averaged clients."""
  shares = {'active_rate': 0.5}

  def sizes(**numbers):
    config = committee.CommitteeConfig(**shares, **numbers)
    return dataclasses.astuple(committee.sizes(20, config))

  assert sizes() == (4, 6, 2)
  assert sizes(num_members=3, num_training=9, num_aggregated=5) == (3, 9, 5)
  assert sizes(num_training=12) == (4, 12, 5)
  assert sizes(num_aggregated=6) == (4, 6, 6)
  # As many training clients as members, and no more than the others.
  assert sizes(num_members=8) == (8, 8, 3)


@pytest.mark.parametrize(
  ('numbers', 'text'),
  [
    ({'num_members': 11}, 'committee.num_members is 11, but 20 .* allow 10'),
    ({'num_training': 20}, 'num_training is 20, but 20 clients .* allow 19,'),
    ({'num_aggregated': 7, 'num_training': 6}, 'num_aggregated is 7, .* 6,'),
    ({'num_aggregated': 5, 'selection': 'all'}, "selection 'all' allow 12"),
    ({'num_members': 7, 'num_training': 6}, 'training is 6, .* to 7, or to 0'),
  ],
)
def test_numbers_that_do_not_fit_are_refused(numbers, text):
  config = committee.CommitteeConfig(active_rate=1.0, **numbers)
  with pytest.raises(errors.ConfigError, match=text):
    committee.sizes(20, config)


@pytest.mark.parametrize(('num_clients', 'most'), [(8, 4), (10, 5), (3, 1)])
def test_the_largest_committee_that_fits_is_advised(num_clients, most):
  config = committee.CommitteeConfig(num_members=num_clients)
  with pytest.raises(errors.ConfigError, match=f'set num_members to {most},'):
    committee.sizes(num_clients, config)


def test_measures_by_hand():
  found = committee.measure(
    tf.constant([1.0, 2, 4, 9], tf.float64),
    tf.constant([False, False, False, True]),
    tf.constant([True, True, True, False]),
    tf.constant([True, True, False, False]),
  )
  assert {name: float(value) for name, value in found.items()} == {
    'num_members': 1,
    'num_training': 3,
    'num_selected': 2,
    'distance_selected': 1.5,
    'distance_training': 7 / 3,
  }
  nobody = tf.zeros([2], tf.bool)
  found = committee.measure(tf.ones([2], tf.float64), *[nobody] * 3)
  assert found['distance_selected'] == 0


def test_the_mean_is_weighted_by_examples():
  mean, total = committee.average(
    _uploads([[1, 2], [3, 4], [9, 9]]),
    tf.constant([1.0, 3.0, 5.0]),
    tf.constant([True, True, False]),
  )
  assert total == 4
  np.testing.assert_allclose(mean['kernel'], [[2.5]])
  np.testing.assert_allclose(mean['bias'], [3.5])


def test_the_mean_of_nobody_is_zero():
  mean, total = committee.average(
    _uploads([[1, 2]]), tf.constant([1.0]), tf.constant([False])
  )
  assert total == 0
  np.testing.assert_array_equal(mean['bias'], [0])


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'active_rate': 0.0}, 'active_rate'),
    ({'committee_rate': 0.6}, 'committee_rate is 0.6'),
    ({'aggregation_rate': 1.5}, 'aggregation_rate'),
    ({'selection': 'best'}, 'selection'),
    ({'election_center': -1.0}, 'election_center'),
  ],
)
def test_options_out_of_range(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    committee.CommitteeConfig(**options)
