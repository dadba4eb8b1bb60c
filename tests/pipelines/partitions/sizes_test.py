import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines import options
from pipelines.partitions import quotas, sizes
from tff_algos.core import errors


def _draw(num_clients, seed=0, **config):
  return sizes.draw_sizes(
    options.SizesConfig(**config), num_clients, np.random.default_rng(seed)
  )


def _choose(config, mixtures, available, *, splits=None, seed=0):
  return sizes.choose_sizes(
    options.SizesConfig(**config),
    splits or options.SplitsConfig(),
    mixtures,
    available,
    groups={'participating': len(mixtures) - 1, 'unseen': 1},
    seed=seed,
  )


def test_uniform_sizes_include_both_ends():
  """Mean of 100,000 draws from 100..200 within 5 standard errors (0.46)."""
  drawn = _draw(100_000, law='uniform', minimum=100, maximum=200)
  assert drawn.min() == 100
  assert drawn.max() == 200
  assert abs(drawn.mean() - 150) < 0.46
  assert np.bincount(drawn)[100:].min() > 850  # 990 expected, 4.5 deviations


@pytest.mark.parametrize('exponent', [0.5, 1.0, 2.5])
def test_power_law(exponent):
  """Shares of each size within 5 standard errors: false alarms < 1e-3."""
  drawn = _draw(
    100_000, law='power_law', exponent=exponent, minimum=10, maximum=60
  )
  assert drawn.min() == 10
  assert drawn.max() <= 60
  # The density n^-exponent between n and n + 1, by a fine sum.
  fine = (np.arange(51_000) + 0.5) / 1000 + 10
  density = (fine**-exponent).reshape(51, 1000).sum(axis=1)
  expected = density / density.sum()
  found = np.bincount(drawn - 10, minlength=51) / 100_000
  assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected / 100_000))


def test_power_law_of_a_great_exponent():
  """Share of the least size within 5 standard errors; 100^-199 is no float."""
  drawn = _draw(
    100_000, law='power_law', exponent=200.0, minimum=100, maximum=200
  )
  assert abs(np.mean(drawn == 100) - (1 - 1.01**-199)) < 0.0055


def test_lognormal_sizes_are_those_of_fedprox():
  """Median of floor(lognormal(4, 2)) + 50 is 50 + 54; PPFL stops at 1000."""
  config = {
    'law': 'lognormal',
    'log_mean': 4.0,
    'log_deviation': 2.0,
    'minimum': 50,
  }
  free = _draw(20_000, **config)
  bounded = _draw(20_000, **config, maximum=1000)
  np.testing.assert_array_equal(bounded, np.minimum(free, 1000))
  assert free.min() >= 50
  # A median of 20,000 lies within 5 errors of 2 * 1.25 / sqrt(20,000) in logs.
  assert abs(np.log(np.median(free) - 50 + 0.5) - 4) < 5 * 0.018


def test_huge_lognormal_sizes_are_no_overflow():
  drawn = _draw(
    100, law='lognormal', log_mean=4.0, log_deviation=500.0, minimum=1
  )
  assert np.all(drawn >= 1)


@hypothesis.given(
  config=strategies.sampled_from(
    [
      {'law': 'uniform', 'minimum': 0, 'maximum': 30},
      {'law': 'power_law', 'exponent': 2.0, 'minimum': 1, 'maximum': 30},
      {
        'law': 'lognormal',
        'log_mean': 1.0,
        'log_deviation': 1.0,
        'minimum': 3,
        'maximum': 30,
      },
    ]
  ),
  num_clients=strategies.integers(1, 50),
  seed=strategies.integers(0, 1000),
)
def test_sizes_are_in_bounds_and_depend_on_the_seed_alone(
  config, num_clients, seed
):
  drawn = _draw(num_clients, seed, **config)
  assert drawn.dtype == np.int64
  assert np.all((drawn >= config['minimum']) & (drawn <= 30))
  np.testing.assert_array_equal(_draw(num_clients, seed, **config), drawn)


def test_more_clients_of_one_group_change_no_size_of_the_other():
  config = {'law': 'uniform', 'minimum': 0, 'maximum': 1000}
  available = np.full((3, 1), 10**6)
  few = _choose(config, np.ones((6, 1)), available)
  more = _choose(config, np.ones((9, 1)), available)
  np.testing.assert_array_equal(few[:5], more[:5])
  assert few[-1] == more[-1]


def test_equal_sizes_are_the_largest():
  available = np.array([[105], [10], [100]])
  splits = options.SplitsConfig(validation_ratio=0.1)
  chosen = _choose({'law': 'equal'}, np.ones((5, 1)), available, splits=splits)
  # 21 would fit the training pool; 2.1 validation examples round to 2.
  np.testing.assert_array_equal(chosen, np.full(5, 21))


def test_a_split_without_any_example_is_refused():
  """A size of 5 would have a test example each, of which there are 73."""
  available = np.array([[727], [0], [73]])
  splits = options.SplitsConfig(test_ratio=0.1)
  with pytest.raises(
    errors.PartitionError, match='727 training and 73 test .* of 100 clients'
  ):
    _choose({'law': 'equal'}, np.ones((100, 1)), available, splits=splits)


@pytest.mark.parametrize('pools', [[4], [50, 0]])
def test_equal_sizes_of_0_are_refused(pools):
  available = np.array([pools, [0] * len(pools), [0] * len(pools)])
  mixtures = np.full((5, len(pools)), 1 / len(pools))
  if len(pools) == 2:  # A size of 1 would be one of the second at each client.
    mixtures = mixtures + [-0.1, 0.1]
  with pytest.raises(
    errors.PartitionError, match=r'no example for each of 5 clients: .*'
  ) as caught:
    _choose({'law': 'equal'}, mixtures, available)
  assert str(pools) in str(caught.value)


@hypothesis.given(
  concentration=strategies.floats(0.1, 10),
  num_clients=strategies.integers(2, 20),
  available=strategies.integers(1, 500),
  seed=strategies.integers(0, 100),
)
def test_dirichlet_sizes_use_one_pool_up(
  concentration, num_clients, available, seed
):
  chosen = _choose(
    {'law': 'dirichlet', 'concentration': concentration},
    np.ones((num_clients, 1)),
    np.array([[available], [0], [0]]),
    seed=seed,
  )
  assert chosen.sum() == available
  assert np.all(chosen >= 0)


def test_dirichlet_sizes_fit_several_pools():
  mixtures = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
  available = np.array([[50, 80], [0, 0], [0, 0]])
  chosen = _choose(
    {'law': 'dirichlet', 'concentration': 1.0}, mixtures, available
  )
  wanted = quotas.count_quotas(mixtures, chosen, options.SplitsConfig())
  assert np.all(wanted.sum(axis=1) <= available)
  assert wanted.sum() > 60


def test_small_concentrations_give_different_sizes():
  """Deviations of 30 shares, at 0.1 and 100: about 0.09 against 0.003."""
  spread = [
    np.std(
      _choose(
        {'law': 'dirichlet', 'concentration': concentration},
        np.ones((30, 1)),
        np.array([[30_000], [0], [0]]),
      )
    )
    for concentration in (0.1, 100.0)
  ]
  assert spread[0] > 10 * spread[1]


def test_dirichlet_sizes_that_cannot_be_met():
  mixtures, available = np.ones((10, 1)), np.array([[100], [0], [0]])
  config = {'law': 'dirichlet', 'concentration': 0.1}
  with pytest.raises(
    errors.PartitionError, match='11 for each of 10 .* only 100'
  ):
    _choose(config | {'minimum': 11}, mixtures, available)
  with pytest.raises(errors.PartitionError, match='in 100 draws .* Raise'):
    _choose(config | {'minimum': 10}, mixtures, available)
  assert (
    _choose(
      config | {'minimum': 1, 'concentration': 5.0}, mixtures, available
    ).min()
    >= 1
  )
