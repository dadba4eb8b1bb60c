"""The map of clients and rounds, coloured by cluster."""

import numpy as np
from matplotlib import colors as colors_lib

from tests.testing import fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import cluster_map_plot


def _draw(workdir):
  run = run_lib.read(workdir)
  with style.applied():
    (axes,) = cluster_map_plot.draw(run).axes
  return run, axes


def _colors(axes):
  """Returns the colour names of the cells, `[num_clients, n]`."""
  (mesh,) = axes.collections
  values = mesh.get_array()
  return np.array(
    [[colors_lib.to_hex(mesh.to_rgba(v)) for v in row] for row in values]
  )


def test_cells_have_the_colour_of_the_matched_source(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  # The fake's clients 0 and 2 are upright; cluster 1 stands for upright.
  fake_workdir.write_memberships(
    tmp_path,
    {
      0: np.ones([4, 2]),
      2: np.eye(2)[[0, 0, 1, 0]],
      4: np.eye(2)[[1, 0, 1, 0]],
    },
  )
  run, axes = _draw(tmp_path)
  upright, rotated = style.planted_colors(run)
  expected = [
    [style.FAINT, rotated, upright],
    [style.FAINT, upright, upright],
    [style.FAINT, rotated, rotated],
    [style.FAINT, rotated, rotated],
  ]
  np.testing.assert_array_equal(_colors(axes), expected)
  assert axes.get_title('left') == (
    '1 of 4 clients changed their cluster as late as round 4'
  )
  names = [text.get_text() for text in axes.get_legend().get_texts()]
  assert names == ['cluster 1', 'cluster 0', 'undecided']


def test_settled_round_is_marked(tmp_path):
  fake_workdir.write(tmp_path, num_clients=2, num_rounds=6)
  fake_workdir.write_memberships(
    tmp_path,
    {r: np.eye(2)[[int(r >= 4), 0]] for r in (0, 2, 4, 5, 6)},
  )
  _, axes = _draw(tmp_path)
  assert axes.get_title('left').endswith('its cluster after round 4')
  np.testing.assert_array_equal(axes.lines[-1].get_xdata(), [4, 4])
  # Columns meet halfway between evaluations.
  edges = axes.collections[0].get_coordinates()[0, :, 0]
  np.testing.assert_array_equal(edges, [-0.5, 1, 3, 4.5, 5.5, 6.5])


def test_many_clients_and_rounds_are_thinned_out(tmp_path):
  fake_workdir.write(tmp_path, num_clients=500, num_rounds=2)
  (tmp_path / 'metrics.csv').write_text('round\n0\n900\n')
  fake_workdir.change_summary(tmp_path, {'round': 900})
  rounds = {r: np.eye(2)[np.arange(500) % 2] for r in range(0, 900, 2)}
  fake_workdir.write_memberships(tmp_path, rounds)
  _, axes = _draw(tmp_path)
  (mesh,) = axes.collections
  assert mesh.get_array().shape == (400, 400)
  assert '400 of 500 clients' in axes.get_ylabel()


def test_initial_state_alone(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=0)
  _, axes = _draw(tmp_path)
  assert not axes.get_title('left')
