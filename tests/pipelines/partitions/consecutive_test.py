import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines.partitions import apportion, consecutive, division
from tff_algos.core import errors

_MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def _divide(counts, num_clients=40, seed=1, **options):
  return consecutive.divide(
    consecutive.Options(**options),
    division.Request(np.asarray(counts), num_clients, 0, seed),
  )


def _quotas(counts, *args, **options):
  counts = np.asarray(counts)
  return apportion.apportion(_divide(counts, *args, **options).shares, counts)


def test_cgpfl_on_cifar():
  """Sizes that the published generator gives on 6000 images of each class."""
  sizes = np.sort(_quotas([6000] * 10).sum(axis=1))
  np.testing.assert_array_equal(sizes[:4], [510, 512, 605, 639])
  np.testing.assert_array_equal(sizes[-3:], [2209, 3623, 4413])
  assert sizes.sum() == 50_369
  assert np.floor(0.75 * sizes).sum() == 37_761
  assert _divide([6000] * 10).facts == {'num_refused_quotas': 12}


@pytest.mark.parametrize(
  ('counts', 'options', 'expected'),
  [
    (_MNIST, {'offset': 180, 'reserve': 400}, (470, 4122, 47_573)),
    (_MNIST, {}, (510, 4382, 49_501)),
    ([6000] * 10, {'offset': 180, 'reserve': 400}, (439, 4148, 49_566)),
  ],
)
def test_cgpfl_on_mnist_and_fashion_mnist(counts, options, expected):
  sizes = _quotas(counts, **options).sum(axis=1)
  assert (sizes.min(), sizes.max(), sizes.sum()) == expected


def test_classes_are_neighbours_on_a_ring():
  divided = _divide([6000] * 10)
  for k, shares in enumerate(divided.shares):
    assert set(np.flatnonzero(shares)) == {k % 10, (k + 1) % 10, (k + 2) % 10}
    assert divided.clusters[k] == k % 10


@hypothesis.given(
  num_clients=strategies.integers(1, 50),
  num_classes=strategies.integers(3, 12),
  count=strategies.integers(500, 5000),
  seed=strategies.integers(0, 2**33),
)
def test_quotas_are_whole_and_fit(num_clients, num_classes, count, seed):
  counts = count + np.arange(num_classes)
  divided = _divide(counts, num_clients, seed)
  wanted = divided.shares * counts
  np.testing.assert_allclose(wanted, np.rint(wanted), atol=1e-6)
  quotas = apportion.apportion(divided.shares, counts)
  np.testing.assert_array_equal(quotas, np.rint(wanted))
  assert np.all(quotas.sum(axis=0) <= counts)
  assert set((quotas > 0).sum(axis=1)) == {3}
  assert quotas[quotas > 0].min() >= 10


@pytest.mark.parametrize(
  ('counts', 'text'),
  [
    ([6000] * 9 + [119], 'class 9 has 119 .* take 120'),
    ([6000] * 2, 'classes_per_client is 3 and only 2'),
  ],
)
def test_too_few_examples(counts, text):
  with pytest.raises(errors.PartitionError, match=text):
    _divide(counts)


@pytest.mark.parametrize('name', ['classes_per_client', 'offset', 'reserve'])
def test_bad_options(name):
  with pytest.raises(errors.ConfigError, match=f'{name} must be'):
    consecutive.Options(**{name: -1})
