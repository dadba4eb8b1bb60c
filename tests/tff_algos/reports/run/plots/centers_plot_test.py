"""The heat map of cluster models on source distributions."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import centers_plot


@pytest.mark.parametrize('score', ['accuracy', 'mse'])
def test_cells_print_scores_and_the_best_is_darkest(tmp_path, score):
  fake_workdir.write(tmp_path, score=score)
  run = run_lib.read(tmp_path)
  (axes,) = centers_plot.draw(run).axes
  scale = 100 if score == 'accuracy' else 1
  printed = [float(text.get_text()) for text in axes.texts]
  np.testing.assert_allclose(
    printed, scale * run.held_out_scores.ravel(), rtol=1e-2
  )
  goodness = axes.images[0].get_array()
  np.testing.assert_array_equal(goodness.argmax(axis=0), [1, 0])
  assert len(axes.patches) == 2
  bold = [t.get_position() for t in axes.texts if t.get_fontweight() == 'bold']
  assert bold == [(1, 0), (0, 1)]


def test_scores_nearly_the_same_look_nearly_the_same(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=0)  # all scores are 10 %
  (axes,) = centers_plot.draw(run_lib.read(tmp_path)).axes
  assert axes.images[0].get_array().min() > 0.8


def test_a_hard_source_is_not_pale_as_a_whole(tmp_path):
  fake_workdir.write(tmp_path, score='mse')
  names = [
    f'held_out/{source}/cluster_{cluster}/mse'
    for source in ('upright', 'rotated_90')
    for cluster in (0, 1)
  ]
  text = f'round,{",".join(names)}\n0,10,20,90,60\n'
  (tmp_path / 'metrics.csv').write_text(text)
  (axes,) = centers_plot.draw(run_lib.read(tmp_path)).axes
  goodness = axes.images[0].get_array()
  np.testing.assert_allclose(goodness, [[1, 0], [0, 1]])


def _write_scores(workdir, *rows):
  """Writes scores of clusters 0 and 1 on two sources, row by row."""
  fake_workdir.write(workdir)
  names = [
    f'held_out/{source}/cluster_{cluster}/accuracy'
    for source in ('upright', 'rotated_90')
    for cluster in (0, 1)
  ]
  (workdir / 'metrics.csv').write_text(
    '\n'.join([f'round,{",".join(names)}', *rows, ''])
  )
  return centers_plot.draw(run_lib.read(workdir))


def test_a_first_source_without_held_out_examples_has_dashes(tmp_path):
  figure = _write_scores(
    tmp_path, '0,nan,nan,.1,.1', '3,nan,nan,.5,.6', '4,,,,'
  )
  (axes,) = figure.axes
  assert [text.get_text() for text in axes.texts] == ['–', '50.0', '–', '60.0']
  assert figure.get_suptitle().endswith('round 3')


def test_a_cluster_model_that_became_nan_keeps_no_earlier_score(tmp_path):
  figure = _write_scores(tmp_path, '0,.1,.1,.1,.1', '5,nan,.2,inf,.3')
  (axes,) = figure.axes
  assert [text.get_text() for text in axes.texts] == ['–', '–', '20.0', '30.0']
  assert (
    _write_scores(tmp_path / 'no', '0,.1,.1,.1,.1', '5,nan,nan,nan,nan') is None
  )
  assert _write_scores(tmp_path / 'none', '0,,,,') is None


def test_a_cluster_that_was_never_scored_gets_a_dash(tmp_path):
  fake_workdir.write(tmp_path)
  path = tmp_path / 'metrics.csv'
  name = 'held_out/upright/cluster_'
  path.write_text(path.read_text().replace(name, 'gone/'))
  (axes,) = centers_plot.draw(run_lib.read(tmp_path)).axes
  assert [text.get_text() for text in axes.texts].count('–') == 2
  assert len(axes.patches) == 1


def test_scores_of_many_sources_are_not_printed(tmp_path):
  names = tuple(f'source_{index}' for index in range(21))
  fake_workdir.write(tmp_path, num_rounds=2, source_names=names)
  (axes,) = centers_plot.draw(run_lib.read(tmp_path)).axes
  assert {text.get_text() for text in axes.texts} == {''}


def test_nothing_to_draw(tmp_path):
  fake_workdir.write(tmp_path)
  (tmp_path / 'metrics.csv').write_text('round\n0\n1\n')
  assert centers_plot.draw(run_lib.read(tmp_path)) is None
  # The scores of a single model are in the table.
  fake_workdir.write(tmp_path / 'one', num_clusters=1)
  assert centers_plot.draw(run_lib.read(tmp_path / 'one')) is None
