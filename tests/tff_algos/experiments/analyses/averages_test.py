"""Averages of few and of many models."""

import numpy as np
import pytest

from tests.testing import csv_files
from tff_algos.experiments.analyses import averages


def _paths(num_models, num_paths, num_steps=30, seed=0):
  return averages.average_paths(
    num_models,
    num_paths,
    num_steps,
    start=np.array([1.0, -0.5]),
    learning_rate=0.01,
    generator=np.random.default_rng(seed),
  )


def test_the_loss_is_that_of_a_million_examples():
  generator = np.random.default_rng(1)
  y = generator.choice([-1.0, 1.0], size=1_000_000)
  x = 2 * y[:, None] + generator.normal(size=(len(y), 2))
  for w in ([0.0, 0.0], [0.3, -0.1], [1.0, 0.5]):
    np.testing.assert_allclose(
      averages.loss(w), np.mean((x @ w - y) ** 2), rtol=0.01
    )
  np.testing.assert_allclose(averages.OPTIMUM, [2 / 9, 2 / 9])
  least = averages.loss(averages.OPTIMUM)
  np.testing.assert_allclose(least, 1 / 9)
  around = averages.OPTIMUM + 0.01 * generator.normal(size=(50, 2))
  assert averages.loss(around).min() > least


def test_a_step_of_one_model_by_hand():
  (path,) = _paths(1, 1, num_steps=1)
  generator = np.random.default_rng(0)
  y = generator.choice([-1.0, 1.0], size=(1, 1))[0, 0]
  x = 2 * y + generator.normal(size=(1, 1, 2))[0, 0]
  start = np.array([1.0, -0.5])
  slope = 2 * (start @ x - y) * x
  np.testing.assert_allclose(path, [start, start - 0.01 * slope])


def test_the_mean_path_is_gradient_descent_on_the_loss():
  """E slope = 2 (E[x x^T] w - E[x y]), with I + mu mu^T and mu."""
  mean = _paths(5, 4000).mean(axis=0)
  w = np.array([1.0, -0.5])
  second = np.eye(2) + np.full((2, 2), 4.0)
  for found in mean:
    np.testing.assert_allclose(found, w, atol=0.01)
    w = w - 0.01 * 2 * (second @ w - 2)


@pytest.mark.parametrize('step', [1, 10, 30])
def test_25_models_vary_a_fifth_as_much_as_5(step):
  """4,000 paths each: the ratio's relative deviation is some 3 %; 15 % is five."""
  few, many = (_paths(size, 4000, seed=size)[:, step] for size in (5, 25))
  np.testing.assert_allclose(
    few.var(axis=0).sum() / many.var(axis=0).sum(), 5, rtol=0.15
  )


def test_tables_and_picture(tmp_path):
  (tmp_path / 'earlier.png').write_text('earlier')
  (tmp_path / 'averages.png').hardlink_to(tmp_path / 'earlier.png')
  rows = averages.draw(400, 0, tmp_path)
  shown = csv_files.read(tmp_path / 'averages.csv')
  assert [row['models'] for row in shown] == ['5'] * 61 + ['25'] * 61
  for row in shown:
    x, y = float(row['x']), float(row['y'])
    # E (w.x - y)^2 on classes around [2, 2] and [-2, -2].
    expected = x**2 + y**2 + (2 * x + 2 * y - 1) ** 2
    np.testing.assert_allclose(float(row['loss']), expected)
  assert max(rows[0]['variance_5'], rows[0]['variance_25']) < 1e-20
  # The ratio's deviation is a tenth: half is five of them.
  ratios = [row['variance_5'] / row['variance_25'] for row in rows[10::10]]
  np.testing.assert_allclose(ratios, 5, rtol=0.5)
  assert rows[-1]['loss_25'] < rows[-1]['loss_5'] < rows[0]['loss_5']
  assert len(csv_files.read(tmp_path / 'averages_variance.csv')) == 61
  assert (tmp_path / 'averages.png').read_bytes().startswith(b'\x89PNG')
  # The picture is replaced, not written in place.
  assert (tmp_path / 'earlier.png').read_text() == 'earlier'


def test_the_seed_decides(tmp_path):
  one, same, other = (
    averages.draw(2, seed, tmp_path / str(number))[-1]
    for number, seed in enumerate([0, 0, 1])
  )
  assert one == same != other


def test_few_and_many_models_are_drawn_apart(tmp_path, monkeypatch):
  average_paths, numbers = averages.average_paths, []

  def record(*sizes, generator, **options):
    numbers.append(generator.random())
    return average_paths(*sizes, generator=generator, **options)

  monkeypatch.setattr(averages, 'average_paths', record)
  averages.draw(2, 0, tmp_path)
  few, many = numbers
  assert few != many
