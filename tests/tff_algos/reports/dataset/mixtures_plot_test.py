"""The picture of source distributions by client."""

import numpy as np

from tests.testing import fake_facts
from tff_algos.reports.dataset import mixtures_plot, picture_rows


def test_bars_are_shares_and_lines_the_plan():
  facts = fake_facts.make(num_sources=3)
  (axes,) = mixtures_plot.draw(facts).axes
  order = picture_rows.similar_side_by_side(facts)
  heights = np.array([bar.get_height() for bar in axes.patches])
  np.testing.assert_allclose(
    heights.reshape(3, 12).T, facts.sources[order] / 40
  )
  (lines, more) = axes.collections
  planned = np.cumsum(facts.mixture[order], axis=1)
  for j, collection in enumerate((lines, more)):
    drawn = [path.vertices[0, 1] for path in collection.get_paths()]
    np.testing.assert_allclose(drawn, planned[:, j])


def test_natural_clients_have_no_plan():
  (axes,) = mixtures_plot.draw(fake_facts.make(natural=True)).axes
  assert not axes.collections


def test_planted_clusters_are_named_once_each():
  (axes,) = mixtures_plot.draw(fake_facts.make(clusters=True)).axes
  names = [tick.get_text() for tick in axes.get_xticklabels()]
  assert names == ['cluster 0', 'cluster 1']
  assert axes.get_xticks().tolist() == [2.5, 8.5]


def test_many_planted_clusters_are_parted_only():
  facts = fake_facts.make(num_clients=20, num_sources=10, clusters=True)
  (axes,) = mixtures_plot.draw(facts).axes
  assert not axes.get_xticks().size
  assert len(axes.lines) == 9


def test_many_clients_share_bars():
  (axes,) = mixtures_plot.draw(fake_facts.make(num_clients=10_000)).axes
  assert len(axes.patches) == 120
  assert '10,000 clients' in axes.get_xlabel()
