"""The picture of the clients' sizes."""

import numpy as np
import pytest

from tests.testing import fake_facts
from tff_algos.reports.dataset import sizes_plot


def _facts(num_clients, train, test=0):
  facts = fake_facts.make(num_clients=num_clients)
  sizes = {
    'train': np.array(train),
    'validation': np.zeros(num_clients, int),
    'test': np.full(num_clients, test),
  }
  return facts._replace(sizes=sizes)


def test_few_clients_are_stacked_bars_from_large_to_small():
  (axes,) = sizes_plot.draw(_facts(3, [5, 9, 0], test=2)).axes
  tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
  assert tops == [9, 5, 0, 11, 7, 2]
  names = [text.get_text() for text in axes.get_legend().get_texts()]
  assert names == ['train', 'test']
  clients = [label.get_text() for label in axes.get_xticklabels()]
  assert clients == ['client_00001', 'client_00000', 'client_00002']


@pytest.mark.parametrize(
  ('low', 'high', 'scale'),
  [(10, 50, 'linear'), (1, 3, 'linear'), (2, 900, 'log')],
)
def test_many_clients_are_a_histogram_that_counts_all(low, high, scale):
  sizes = np.random.default_rng(1).integers(low, high + 1, 5000)
  sizes[:2] = low, high
  (axes,) = sizes_plot.draw(_facts(5000, sizes)).axes
  assert sum(bar.get_height() for bar in axes.patches) == 5000
  assert axes.get_xscale() == scale
  assert f'{low:,} to {high:,} training examples' in axes.get_title()


def test_many_clients_without_examples():
  (axes,) = sizes_plot.draw(_facts(100, [0] * 100)).axes
  assert sum(bar.get_height() for bar in axes.patches) == 100


def test_nothing_to_draw():
  assert sizes_plot.draw(fake_facts.make()._replace(client_ids=())) is None


def test_ticks_of_a_log_scale_are_no_formulas():
  (axes,) = sizes_plot.draw(
    _facts(100, np.geomspace(1, 5000, 100).astype(int))
  ).axes
  assert axes.get_xscale() == 'log'
  assert axes.xaxis.get_major_formatter()(1000) == '1,000'
