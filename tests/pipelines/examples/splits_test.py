import hypothesis
import numpy as np
from hypothesis import strategies

from pipelines import options
from pipelines.examples import splits
from tests.testing import surveys

_keys = surveys.keys


def _survey(keys, is_test=None, **more):
  survey = surveys.survey(len(keys), is_test=is_test, **more)
  return survey._replace(key=keys)


def _roles(keys, config, is_test=None, seed=0, **more):
  return splits.assign_roles(
    _survey(keys, is_test, **more),
    config,
    has_test_split=is_test is not None,
    seed=seed,
  )


def test_shares_are_as_asked():
  """Binomial counts of 20,000 within 5 deviations: false alarms < 1e-5."""
  config = options.SplitsConfig(0.5, 0.25, held_out_fraction=0.3)
  roles = _roles(_keys(range(20_000)), config)
  shares = np.bincount(roles, minlength=4) / 20_000
  expected = [0.7 / 1.75, 0.7 * 0.5 / 1.75, 0.7 * 0.25 / 1.75, 0.3]
  np.testing.assert_allclose(shares, expected, atol=5 * 0.5 / 20_000**0.5)


def test_no_split_gets_what_its_ratio_does_not_give():
  config = options.SplitsConfig(0.0, 0.0, held_out_fraction=0.0)
  assert set(_roles(_keys(range(100)), config)) == {0}


def test_copies_of_an_image_share_their_role():
  keys = _keys([*range(50), *range(50)])
  roles = _roles(keys, options.SplitsConfig(0.5, 0.5))
  np.testing.assert_array_equal(roles[:50], roles[50:])


def test_role_depends_on_content_and_seed_alone():
  keys = _keys(range(200))
  config = options.SplitsConfig(0.5, 0.5)
  roles = _roles(keys, config)
  np.testing.assert_array_equal(_roles(keys[::-1], config), roles[::-1])
  np.testing.assert_array_equal(_roles(keys[:50], config), roles[:50])
  assert np.any(_roles(keys, config, seed=1) != roles)


def test_official_test_split_is_held_out_whole():
  keys = _keys(range(100))
  is_test = np.arange(100) >= 80
  config = options.SplitsConfig(0.5, 0.5, held_out_fraction=0.9)
  roles = _roles(keys, config, is_test)
  assert set(roles[is_test]) == {splits.HELD_OUT}
  assert set(roles[~is_test]) == {0, 1, 2}


def test_training_example_that_is_in_the_test_split_is_left_out():
  keys = _keys([0, 1, 2, 1])
  roles = _roles(
    keys, options.SplitsConfig(), np.array([False, False, False, True])
  )
  np.testing.assert_array_equal(roles, [0, splits.UNUSED, 0, splits.HELD_OUT])


def test_pooled_test_split_is_split_like_the_rest():
  keys = _keys([*range(100), 5])
  is_test = np.arange(101) >= 80
  config = options.SplitsConfig(
    0.5, 0.5, held_out_fraction=0.0, pool_test_split=True
  )
  roles = _roles(keys, config, is_test)
  np.testing.assert_array_equal(roles, _roles(keys, config))
  assert set(roles[is_test]) == {0, 1, 2}


def _split(owner, keys, seed=0, **ratios):
  config = options.SplitsConfig(**ratios, split_by='client')
  roles = np.zeros(len(keys), np.int8)
  return splits.split_clients(
    np.asarray(owner), _survey(keys), roles, config, seed
  )


@hypothesis.given(
  owner=strategies.lists(strategies.integers(-1, 4), max_size=80),
  validation=strategies.sampled_from([0.0, 0.1, 0.5]),
  test=strategies.sampled_from([0.0, 0.25, 1 / 3, 1.0]),
  seed=strategies.integers(0, 100),
)
def test_each_client_is_split_in_exact_shares(owner, validation, test, seed):
  owner = np.array(owner, int)
  keys = _keys(range(len(owner)))
  ratios = {'validation_ratio': validation, 'test_ratio': test}
  roles = _split(owner, keys, seed, **ratios)
  assert np.all(roles[owner < 0] == 0)
  total = 1 + validation + test
  for client in range(5):
    counts = np.bincount(roles[owner == client], minlength=3)
    n = counts.sum()
    assert counts[0] == int(n / total + 1e-6)
    assert counts[0] + counts[1] == int(n * (1 + validation) / total + 1e-6)
  order = np.random.default_rng(seed).permutation(len(owner))
  np.testing.assert_array_equal(
    _split(owner[order], keys[order], seed, **ratios), roles[order]
  )


def test_splits_of_clients_follow_the_seed():
  keys, owner = _keys(range(50)), np.zeros(50, int)
  roles = [_split(owner, keys, seed, test_ratio=1.0) for seed in (0, 1)]
  assert np.any(roles[0] != roles[1])


def test_what_is_held_out_is_not_split():
  config = options.SplitsConfig(test_ratio=1.0, split_by='client')
  roles = np.array([0, 3, -1, 0], np.int8)
  split = splits.split_clients(
    np.zeros(4, int), surveys.survey(4), roles, config, 0
  )
  np.testing.assert_array_equal(split[1:3], [3, -1])
  assert sorted(split[[0, 3]]) == [0, 2]


def test_no_split_divides_a_group():
  """Groups of 4,000 within 5 deviations of their shares: false alarms < 1e-5."""
  groups = np.arange(8000) // 2
  config = options.SplitsConfig(
    0.5, 0.5, held_out_fraction=0.25, split_by='group'
  )
  roles = _roles(_keys(range(8000)), config, group=groups)
  np.testing.assert_array_equal(roles[::2], roles[1::2])
  shares = np.bincount(roles, minlength=4) / 8000
  expected = [0.375, 0.1875, 0.1875, 0.25]
  np.testing.assert_allclose(shares, expected, atol=5 * 0.5 / 4000**0.5)
  # The groups of one key: what the hash of the content would divide.
  content = _roles(_keys(range(8000)), options.SplitsConfig(0.5, 0.5))
  assert np.any(content[::2] != content[1::2])


def test_group_of_the_official_test_split_is_left_out_of_training():
  roles = _roles(
    _keys(range(4)),
    options.SplitsConfig(split_by='group'),
    np.array([False, False, False, True]),
    group=['a', 'b', 'a', 'b'],
  )
  np.testing.assert_array_equal(roles, [0, splits.UNUSED, 0, splits.HELD_OUT])


def test_copies_in_other_groups_or_at_other_times_may_be_tested():
  """As without an official test split."""
  is_test = np.array([False, False, False, True])
  roles = _roles(
    _keys([0, 1, 0, 1]),
    options.SplitsConfig(split_by='group'),
    is_test,
    group=['a', 'b', 'a', 'c'],
  )
  assert splits.UNUSED not in roles
  roles = _roles(
    *(_keys([0, 1, 0, 1]), options.SplitsConfig(split_by='time'), is_test),
    time=np.arange(4.0),
  )
  assert splits.UNUSED not in roles


def _by_time(time, split_by='time', is_test=None, **ratios):
  config = options.SplitsConfig(split_by=split_by, **ratios)
  time = np.array(time, float)
  return _roles(_keys(range(len(time))), config, is_test, time=time)


def test_later_examples_are_in_later_splits():
  time = np.random.default_rng(0).permutation(20)
  ratios = {'validation_ratio': 0.5, 'test_ratio': 0.5}
  roles = _by_time(time, held_out_fraction=0.2, **ratios)
  expected = [0] * 8 + [1] * 4 + [2] * 4 + [splits.HELD_OUT] * 4
  np.testing.assert_array_equal(roles[np.argsort(time)], expected)


def test_equal_times_stay_together_in_the_later_split():
  roles = _by_time([0, 1, 1, 1], test_ratio=1.0, held_out_fraction=0.0)
  np.testing.assert_array_equal(roles, [0, 2, 2, 2])


def test_windows_across_a_border_are_left_out():
  """Windows of three time steps: none of a later split overlaps training."""
  time = np.arange(20)
  roles = _by_time(time, test_ratio=1.0, held_out_fraction=0.5, time_gap=2.5)
  expected = [0] * 5 + [splits.IN_GAP] * 3 + [2] * 2
  expected += [splits.IN_GAP] * 3 + [splits.HELD_OUT] * 7
  np.testing.assert_array_equal(roles, expected)
  seen = set(time[roles == 0]) | set(time[roles == 0] + 2)
  for later in (2, splits.HELD_OUT):
    assert not seen & set(time[roles == later])


def test_official_test_split_needs_no_time_of_its_own():
  is_test = np.array([False, True, False, True])
  roles = _by_time([3, 0, 1, 0], is_test=is_test, test_ratio=1.0)
  np.testing.assert_array_equal(roles, [2, splits.HELD_OUT, 0, splits.HELD_OUT])


def test_each_client_is_split_in_its_own_order_of_time():
  owner = np.array([0, 1, 0, 1, 0, 1, 0, 1, -1])
  time = np.array([3.0, 10, 2, 40, 1, 20, 0, 30, 5])
  config = options.SplitsConfig(
    test_ratio=1.0, held_out_fraction=0.0, split_by='client_time', time_gap=5.0
  )
  survey = surveys.survey(9, time=time)
  roles = splits.assign_roles(survey, config, has_test_split=False, seed=0)
  np.testing.assert_array_equal(roles, np.zeros(9))
  split = splits.split_clients(owner, survey, roles, config, 0)
  gap = splits.IN_GAP
  np.testing.assert_array_equal(split, [gap, 0, gap, 2, 0, 0, 0, gap, 0])


def test_the_latest_of_all_clients_are_held_out():
  roles = _by_time([4, 0, 3, 2, 1], 'client_time', held_out_fraction=0.4)
  held_out = splits.HELD_OUT
  np.testing.assert_array_equal(roles, [held_out, 0, held_out, 0, 0])


def test_shares_by_time_are_those_of_labelled_examples():
  """The latest examples have no label yet, and none of them is held out."""
  y = np.array([-1, *[1] * 10, *[-1] * 5], np.int32)
  config = options.SplitsConfig(
    test_ratio=1.0, held_out_fraction=0.2, split_by='time'
  )
  roles = _roles(_keys(range(16)), config, time=np.arange(16.0), y=y)
  expected = [0] * 4 + [2] * 4 + [splits.HELD_OUT] * 2
  np.testing.assert_array_equal(roles[1:11], expected)
