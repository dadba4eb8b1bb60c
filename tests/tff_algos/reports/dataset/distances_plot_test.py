"""The picture of distances between clients."""

import numpy as np
import pytest

from tests.testing import fake_facts
from tff_algos.reports.dataset import distances_plot, picture_rows


def test_matrix_holds_the_total_variation_of_labels():
  facts = fake_facts.make()
  matrix, _, _ = distances_plot.draw(facts).axes
  order = picture_rows.similar_side_by_side(facts)
  shares = facts.labels[order] / 40
  expected = [[abs(p - q).sum() / 2 for q in shares] for p in shares]
  np.testing.assert_allclose(matrix.images[0].get_array(), expected)


def test_histogram_tells_planted_clients_from_chance():
  facts = fake_facts.make(num_clients=100, size=400)
  _, histogram, *_ = distances_plot.draw(facts).axes
  texts = [text.get_text() for text in histogram.get_legend().get_texts()]
  chance, found = (float(text.rpartition(' ')[2]) for text in texts)
  assert chance < 0.1 < 0.4 < found
  assert '4,950 pairs' in histogram.get_title()
  heights = [bar.get_height() for bar in histogram.patches]
  np.testing.assert_allclose(sum(heights), 2)


def test_pairs_are_all_pairs_of_few_clients():
  first, second = distances_plot.sample_pairs(np.array([7, 3, 5]))
  pairs = set(zip(first.tolist(), second.tolist(), strict=True))
  assert pairs == {(7, 3), (7, 5), (3, 5)}


def test_pairs_of_many_clients_are_drawn_the_same_way_again():
  clients = np.arange(100_000)
  first, second = distances_plot.sample_pairs(clients)
  again, _ = distances_plot.sample_pairs(clients)
  assert len(first) == 20_000
  assert not np.any(first == second)
  np.testing.assert_array_equal(first, again)


def test_redrawn_clients_keep_their_sizes():
  counts = np.array([[5, 0, 3], [0, 9, 0], [0, 0, 0]])
  redrawn = distances_plot.redraw(counts)
  assert redrawn.sum(axis=1).tolist() == [8, 9, 0]


def test_a_regression_compares_sources():
  facts = fake_facts.make(num_classes=0, x_shape=(3,))
  figure = distances_plot.draw(facts)
  assert 'source mixtures' in figure._suptitle.get_text()


@pytest.mark.parametrize(
  'options', [{'num_clients': 1}, {'num_classes': 0, 'num_sources': 1}]
)
def test_nothing_to_draw(options):
  assert distances_plot.draw(fake_facts.make(x_shape=(3,), **options)) is None
