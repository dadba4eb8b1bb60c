"""The picture of atoms and of how far clients' own ones have gone."""

import numpy as np

from tests.testing import fake_atoms, fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import atoms_plot


def _draw(tmp_path):
  with style.applied():
    figure = atoms_plot.draw(fake_workdir.read(tmp_path, num_rounds=2))
  atoms = [axes for axes in figure.axes if axes.images]
  return atoms, [axes for axes in figure.axes if axes not in atoms]


def test_atoms_stand_by_the_norm_of_their_coefficients(tmp_path):
  atoms, _ = _draw(tmp_path)
  shown = [axes.get_title('center') for axes in atoms]
  assert shown[:4] == ['3', '2', '1', '0']
  assert len(shown) == 4 + 9
  for side, first in ((5, atoms[0]), (3, atoms[4])):
    norm = float(first.get_title('center'))
    # Row by row, as the file has them.
    expected = norm * np.arange(side**2).reshape(side, side)
    np.testing.assert_array_equal(first.images[0].get_array(), expected)
  names = [axes.get_ylabel() for axes in atoms if axes.get_ylabel()]
  assert names == list(fake_atoms.LAYERS)
  # White is zero, and a layer has one scale.
  limits = {axes.images[0].get_clim() for axes in atoms[4:]}
  assert limits == {(-64.0, 64.0)}


def test_a_bar_for_each_client_the_farthest_first(tmp_path):
  _, panels = _draw(tmp_path)
  heights = [bar.get_height() for bar in panels[0].patches]
  assert heights[:3] == [21, 18, 15]
  assert len(heights) == 7
  assert panels[1].patches[0].get_height() == 42
  # The others never trained own atoms: they leave no gap.
  assert panels[0].get_title('left') == 'own atoms: 7 of 24 clients'
  assert not panels[0].get_xticks().size


def test_without_own_atoms_there_are_no_panels(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'evaluation' / 'own_atoms.csv'
  path.write_text('client_id,distance_conv_0,distance_conv_1\na,0,0\nb,0,0\n')
  figure = atoms_plot.draw(run_lib.read(tmp_path))
  assert all(axes.images for axes in figure.axes)
