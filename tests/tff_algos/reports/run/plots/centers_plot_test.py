"""The heat map of cluster models on source distributions."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import centers_plot


@pytest.mark.parametrize('score', ['accuracy', 'mse'])
def test_cells_print_scores_and_the_best_is_darkest(tmp_path, score):
  run = fake_workdir.read(tmp_path, score=score)
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
  run = fake_workdir.read(tmp_path, num_rounds=0)  # all scores are 10 %
  (axes,) = centers_plot.draw(run).axes
  assert axes.images[0].get_array().min() > 0.8


def test_a_hard_source_is_not_pale_as_a_whole(tmp_path):
  fake_workdir.write(tmp_path, score='mse')
  fake_workdir.score_held_out(tmp_path, [[10, 90], [20, 60]], 'mse')
  (axes,) = centers_plot.draw(run_lib.read(tmp_path)).axes
  goodness = axes.images[0].get_array()
  np.testing.assert_allclose(goodness, [[1, 0], [0, 1]])


def _draw_scores(workdir, scores):
  fake_workdir.write(workdir, num_rounds=3)
  fake_workdir.score_held_out(workdir, scores)
  return centers_plot.draw(run_lib.read(workdir))


def test_a_first_source_without_held_out_examples_has_dashes(tmp_path):
  figure = _draw_scores(tmp_path, [[np.nan, 0.5], [None, 0.6]])
  (axes,) = figure.axes
  assert [text.get_text() for text in axes.texts] == ['–', '50.0', '–', '60.0']
  assert len(axes.patches) == 1
  assert figure.get_suptitle().endswith('round 3')


def test_a_cluster_model_that_became_nan_keeps_no_earlier_score(tmp_path):
  (axes,) = _draw_scores(tmp_path, [[np.nan, np.inf], [0.2, 0.3]]).axes
  assert [text.get_text() for text in axes.texts] == ['–', '–', '20.0', '30.0']
  assert _draw_scores(tmp_path, np.full([2, 2], np.nan)) is None


def test_scores_of_many_sources_are_not_printed(tmp_path):
  names = tuple(f'source_{index}' for index in range(21))
  run = fake_workdir.read(tmp_path, num_rounds=2, source_names=names)
  (axes,) = centers_plot.draw(run).axes
  assert {text.get_text() for text in axes.texts} == {''}
