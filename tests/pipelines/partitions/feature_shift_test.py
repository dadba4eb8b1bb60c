import hypothesis
import numpy as np
from hypothesis import strategies

from pipelines.partitions import feature_shift
from tests.testing import raw_data, surveys

_NOISE = {'kind': 'noise', 'noise_levels': (0.0, 0.1, 0.2)}


def _show(owners, groups, num_sources, *, native=None, seed=0, **distributions):
  owners = np.asarray(owners, np.int32)
  return feature_shift.show(
    owners,
    surveys.survey(len(owners), native=native),
    groups,
    num_sources,
    raw_data.digits_config(seed=seed, distributions=distributions),
  )


@hypothesis.given(
  num_clients=strategies.integers(1, 40),
  num_unseen=strategies.integers(0, 9),
  seed=strategies.integers(0, 99),
)
def test_each_client_sees_in_one_way(num_clients, num_unseen, seed):
  groups = {'participating': num_clients, 'unseen': num_unseen}
  owners = np.arange(-1, num_clients + num_unseen)
  mixtures, by_source = _show(owners, groups, 3, seed=seed, **_NOISE)
  np.testing.assert_array_equal(mixtures.sum(axis=1), 1)
  assert set(mixtures.ravel()) == {0.0, 1.0}
  for part in (mixtures[:num_clients], mixtures[num_clients:]):
    clients = part.sum(axis=0)
    assert clients.max() - clients.min() <= 1
  assert by_source.dtype == np.int32
  np.testing.assert_array_equal(by_source.max(axis=0), owners)
  np.testing.assert_array_equal((by_source >= 0)[:, 1:].T, mixtures)


def test_native_examples_stay_in_their_distribution():
  mixtures, by_source = _show(
    [0, 0, 0, 1, -1],
    {'participating': 3},
    2,
    native=np.array([0, 1, 1, 0, 1]),
    kind='native',
  )
  np.testing.assert_allclose(mixtures, [[1 / 3, 2 / 3], [1, 0], [0.5, 0.5]])
  np.testing.assert_array_equal(
    by_source, [[0, -1, -1, 1, -1], [-1, 0, 0, -1, -1]]
  )


def test_views_of_native_distributions():
  native = np.array([0, 1, 0, 1])
  mixtures, by_source = _show(
    [0, 0, 1, 1],
    {'participating': 2},
    4,
    native=native,
    kind='rotations',
    quarter_turns=(0, 1),
  )
  # One client sees all upright, the other all turned.
  assert sorted(mixtures.tolist()) == [[0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0]]
  for source, owners in enumerate(by_source):
    assert set(native[owners >= 0]) == {source // 2}


def test_client_without_examples_could_have_had_any():
  mixtures, _ = _show([-1, -1], {'participating': 1}, 3, **_NOISE)
  assert sorted(mixtures[0]) == [0, 0, 1]


def test_one_distribution_is_no_shift():
  mixtures, by_source = _show([0, -1], {'participating': 1}, 1)
  assert mixtures is None
  np.testing.assert_array_equal(by_source, [[0, -1]])


def test_views_follow_the_seed():
  one, same, other = (
    feature_shift.draw_views({'participating': 30}, 3, seed)
    for seed in (0, 0, 1)
  )
  np.testing.assert_array_equal(one, same)
  assert np.any(one != other)
  assert np.any(one != np.arange(30) % 3)
