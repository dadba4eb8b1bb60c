import numpy as np
import pytest

from pipelines.sources import base, registry
from tff_algos.core import errors


def _source(seed=0, **options):
  return registry.create('quadratics', options, seed)


def _read(source, part, start, stop):
  examples = list(source.read(base.Block(part, start, stop)))
  x = np.stack([e.x for e in examples]).astype(float)
  return x, np.array([e.y for e in examples]), examples


def test_minimum_is_planted_exactly_in_any_few_points():
  source = _source(num_sources=3)
  for s in range(3):
    for start in (0, 500, 900):
      x, y, examples = _read(source, f'train_{s}', start, start + 8)
      found = np.linalg.lstsq(x, y, rcond=None)[0]
      np.testing.assert_allclose(found, source.minima()[s], atol=1e-10)
      assert {e.native_source for e in examples} == {s}


def test_loss_is_the_quadratic():
  source = _source()
  x, y, _ = _read(source, 'test_1', 0, 100)
  w = np.array([1.0, -2.0, 0.5, 3.0])
  gap = w - source.minima()[1]
  hessian = x.T @ x / len(x)
  loss = np.mean((x @ w - y) ** 2) / 2
  np.testing.assert_allclose(loss, gap @ hessian @ gap / 2, rtol=1e-12)


def test_hessian_is_near_the_curvatures():
  """1,000 points: entries within five deviations, 10 bounds, 1 in 100,000."""
  source = _source()
  x, _, _ = _read(source, 'train_0', 0, 1000)
  curvatures = source.curvatures()
  np.testing.assert_allclose(curvatures, [0.5, 1, 1.5, 2])
  gap = x.T @ x / len(x) - np.diag(curvatures)
  spread = np.sqrt(np.outer(curvatures, curvatures) * (1 + np.eye(4)) / 1000)
  assert np.all(np.abs(gap) < 5 * spread)


def test_minima_differ_and_are_recorded():
  source = _source(num_sources=2)
  facts = source.facts()
  np.testing.assert_array_equal(facts['minima'], source.minima())
  assert np.any(source.minima()[0] != source.minima()[1])
  assert np.any(source.minima() != _source(1).minima())
  assert source.native_source_names() == ('minimum_0', 'minimum_1')


@pytest.mark.parametrize(
  'options',
  [
    {'num_sources': 0},
    {'num_features': 0},
    {'min_curvature': 0.0},
    {'max_curvature': 0.1},
    {'minimum_spread': 0.0},
    {'num_examples_per_source': 0},
    {'num_held_out_per_source': 0},
  ],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    _source(**options)
