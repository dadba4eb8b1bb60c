"""The histogram of distances from the planted mixtures."""

import numpy as np

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import planted_distances_plot


def _write(workdir, memberships):
  """Four clients that hold 0.9 of one of two sources."""
  fake_workdir.write(workdir, num_clients=4, num_rounds=4)
  fake_workdir.write_memberships(workdir, memberships)
  return planted_distances_plot.draw(run_lib.read(workdir))


def _bars(axes):
  """Left end in points -> clients, of the bars that are there."""
  return {
    round(100 * (patch.get_x() + patch.get_width() / 2) // 5 * 5): int(height)
    for patch in axes.patches
    if (height := patch.get_height())
  }


def test_the_first_and_the_last_evaluation(tmp_path):
  """Cluster 1 stands for the source of the clients 0 and 2."""
  start = np.tile([0.48, 0.52], (4, 1))
  last = np.array([[0.12, 0.88], [0.78, 0.22], [0.28, 0.72], [0.92, 0.08]])
  first, final = _write(tmp_path, {0: start, 2: last, 4: last}).axes
  assert _bars(first) == {35: 2, 40: 2}
  assert _bars(final) == {0: 2, 10: 1, 15: 1}
  assert _title(final) == 'round 4: median 7.0 (dotted), mean 8.5'
  assert _title(first) == 'round 0: median 40.0 (dotted), mean 40.0'


def test_clients_that_are_left_out_are_counted(tmp_path):
  last = np.array([[0.12, 0.88], [0.78, 0.22], [0.28, 0.72], [0, 0]])
  (final,) = _write(tmp_path, {0: np.zeros((4, 2)), 4: last}).axes
  assert sum(_bars(final).values()) == 3
  assert '1 of 4 clients left out: not sampled yet' in _title(final)


def _title(axes):
  return axes.get_title('left') + axes.get_title()


def test_a_single_evaluation(tmp_path):
  (axes,) = _write(tmp_path, {4: np.full([4, 2], 0.5)}).axes
  assert sum(_bars(axes).values()) == 4
