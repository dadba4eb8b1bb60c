"""Memberships of the cells of a sweep, side by side."""

import numpy as np

from tests.testing import fake_sweep
from tff_algos.reports.sweep import cell_memberships_plot
from tff_algos.reports.sweep import plan as plan_lib


def _draw(folder, num_cells, **options):
  values = tuple(range(1, 1 + num_cells))
  axes = [plan_lib.Axis('algorithm.tau', 'tau', values)]
  levels = {(value,): [0.5, 0.5] for value in values}
  sweep = fake_sweep.read(folder, levels, axes, **options)
  return cell_memberships_plot.draw(sweep)


def test_a_map_a_cell_with_clients_and_clusters_by_source(tmp_path):
  # The clients 0 and 1 hold source a, whose cluster is 1 but for client 0.
  figure = _draw(tmp_path, 2, cluster_ids=(0, 1, 0, 0))
  *panels, _ = figure.axes
  assert [axes.get_title('left') + axes.get_title() for axes in panels] == [
    'tau=1',
    'tau=2',
  ]
  for axes in panels:
    np.testing.assert_array_equal(
      axes.images[0].get_array(), [[0, 1], [1, 0], [0, 1], [0, 1]]
    )
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ['1', '0']
  left, right = panels
  assert [label.get_text() for label in left.get_yticklabels()] == ['a', 'b']
  assert not right.get_yticklabels()


def test_one_cell_is_no_comparison_and_many_cannot_be_read(tmp_path):
  assert _draw(tmp_path / 'one', 1) is None
  assert _draw(tmp_path / 'many', 13) is None
  assert len(_draw(tmp_path / 'most', 12).axes) == 13
