import numpy as np
import pytest

from pipelines.sources import base, registry
from tff_algos.core import errors


def _source(seed=0, **options):
  return registry.create('two_gaussians', options, seed)


def _read(source, part, count):
  examples = list(source.read(base.Block(part, 0, count)))
  return np.stack([e.x for e in examples]).astype(float), np.array(
    [e.y for e in examples]
  )


@pytest.mark.parametrize(
  ('variance', 'weight', 'loss'), [(1.0, 2 / 9, 1 / 9), (2.0, 0.2, 0.2)]
)
def test_optimum(variance, weight, loss):
  """Filter decomposition: least squares on 20,000 points.

  By the delta method the weights found spread by less than 0.0018 and the
  loss by less than 0.0025; 5 deviations.
  """
  source = _source(variance=variance)
  x, y = _read(source, 'train', 20_000)
  found, residual, _, _ = np.linalg.lstsq(x, y, rcond=None)
  np.testing.assert_allclose(found, [weight, weight], atol=0.009)
  np.testing.assert_allclose(residual[0] / len(y), loss, atol=0.0125)
  facts = source.facts()
  np.testing.assert_allclose(facts['optimum'], [weight, weight])
  np.testing.assert_allclose(facts['optimal_loss'], loss)


def test_means_and_variances_of_both_classes():
  """Five deviations of 5,000 draws each, 10 bounds: once in 100,000."""
  x, y = _read(_source(), 'test', 10_000)
  for target in (-1, 1):
    points = x[y == target]
    assert len(points) == 5000
    assert np.all(np.abs(points.mean(axis=0) - 2 * target) < 5 / np.sqrt(5000))
    assert np.all(np.abs(points.var(axis=0) - 1) < 5 * np.sqrt(2 / 5000))
    assert abs(np.corrcoef(points.T)[0, 1]) < 5 / np.sqrt(5000)


def test_parts_and_seeds_differ():
  first = _read(_source(), 'train', 3)[0]
  assert np.any(first != _read(_source(), 'test', 3)[0])
  assert np.any(first != _read(_source(1), 'train', 3)[0])
  part = list(_source().read(base.Block('train', 2, 3)))
  np.testing.assert_array_equal(part[0].x, first[2])


@pytest.mark.parametrize(
  'options',
  [{'mean': -1.0}, {'variance': 0.0}, {'num_examples': 0}, {'num_held_out': 0}],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    _source(**options)
