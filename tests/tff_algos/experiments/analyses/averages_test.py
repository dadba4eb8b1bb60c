"""Averages of few and of many models."""

import numpy as np

from tests.testing import csv_files
from tff_algos.algorithms.filter_decomposition import averaged_models
from tff_algos.experiments.analyses import averages


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
  average_paths, numbers = averaged_models.average_paths, []

  def record(*sizes, generator, **options):
    numbers.append(generator.random())
    return average_paths(*sizes, generator=generator, **options)

  monkeypatch.setattr(averaged_models, 'average_paths', record)
  averages.draw(2, 0, tmp_path)
  few, many = numbers
  assert few != many
