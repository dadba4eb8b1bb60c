import hypothesis
import numpy as np
from hypothesis import strategies

from pipelines import options
from pipelines.examples import hashing, splits


def _keys(names):
  return np.stack(
    [np.frombuffer(hashing.text_key(str(name)), np.uint8) for name in names]
  )


def _roles(keys, config, is_test=None, seed=0):
  has_test_split = is_test is not None
  if is_test is None:
    is_test = np.zeros(len(keys), bool)
  return splits.assign_roles(
    keys, is_test, config, has_test_split=has_test_split, seed=seed
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
  return splits.split_clients(np.asarray(owner), keys, roles, config, seed)


@hypothesis.given(
  owner=strategies.lists(strategies.integers(-1, 4), max_size=80),
  validation=strategies.sampled_from([0.0, 0.1, 0.5]),
  test=strategies.sampled_from([0.0, 0.25, 1 / 3, 1.0]),
  seed=strategies.integers(0, 100),
)
def test_each_client_is_split_in_exact_shares(owner, validation, test, seed):
  owner = np.array(owner, int)
  keys = _keys(range(len(owner))) if len(owner) else np.zeros((0, 16), np.uint8)
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
    np.zeros(4, int), _keys(range(4)), roles, config, 0
  )
  np.testing.assert_array_equal(split[1:3], [3, -1])
  assert sorted(split[[0, 3]]) == [0, 2]
