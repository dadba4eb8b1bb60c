"""Heat maps of memberships while training goes on."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import membership_maps_plot


def test_rows_are_clients_by_source_and_columns_clusters_by_source(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  final = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
  fake_workdir.write_memberships(tmp_path, {0: np.full([4, 2], 0.5), 4: final})
  first, last, _ = membership_maps_plot.draw(run_lib.read(tmp_path)).axes
  np.testing.assert_allclose(first.images[0].get_array(), 0.5)
  # Cluster 1 stands for the source of the clients 0 and 2.
  np.testing.assert_allclose(
    last.images[0].get_array(), final[[0, 2, 1, 3]][:, ::-1], rtol=1e-6
  )
  assert last.get_title('left') + last.get_title() == 'round 4'


def test_at_most_six_rounds_with_both_ends(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=30)
  *panels, _ = membership_maps_plot.draw(run).axes
  titles = [axes.get_title('left') + axes.get_title() for axes in panels]
  assert titles == [f'round {r}' for r in (0, 6, 12, 18, 24, 30)]


@pytest.mark.parametrize('none', [0.0, 1e-4])
def test_clients_without_a_membership_are_grey_and_have_a_word(tmp_path, none):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  half = np.full([4, 2], 0.5)
  start = half.copy()
  start[2] = none
  fake_workdir.write_memberships(tmp_path, {0: start, 4: half})
  run = run_lib.read(tmp_path)
  first, last, _ = membership_maps_plot.draw(run).axes
  # Client 2 is the second one of its source.
  grey = np.ma.getmaskarray(first.images[0].get_array())
  assert grey.all(axis=1).tolist() == [False, True, False, False]
  assert not np.ma.getmaskarray(last.images[0].get_array()).any()
  assert first.images[0].cmap.get_bad()[0] == pytest.approx(0xC8 / 255)
  assert 'Grey: client without' in membership_maps_plot.PICTURE.caption(run)
