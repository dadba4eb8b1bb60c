import numpy as np

from pipelines import hashing, options, splits


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
