"""The shared look: labels keep apart, colours keep their meaning."""

import hypothesis
import matplotlib
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from tests.testing import fake_workdir
from tff_algos.reports import run as run_lib
from tff_algos.reports import style


@hypothesis.given(
  hypothesis_numpy.arrays(
    np.float64, st.integers(1, 9), elements=st.floats(0, 1)
  )
)
@hypothesis.settings(max_examples=50, deadline=None)
def test_labels_keep_apart_in_order_and_inside(positions):
  gap = 0.1
  placed = style.spread(positions, gap)
  order = np.argsort(positions, kind='stable')
  assert (np.diff(placed[order]) >= gap - 1e-9).all()
  assert ((placed >= -1e-9) & (placed <= 1 + 1e-9)).all()


def test_labels_with_room_stay_where_they_are():
  np.testing.assert_allclose(
    style.spread(np.array([0.9, 0.1]), 0.1), [0.9, 0.1]
  )
  # Two at one place part evenly.
  np.testing.assert_allclose(
    style.spread(np.array([0.5, 0.5]), 0.2), [0.4, 0.6]
  )


def test_a_cluster_has_the_colour_of_its_source(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2, num_clusters=3)
  run = run_lib.read(tmp_path)
  sources, clusters = style.source_colors(run), style.cluster_colors(run)
  assert clusters[1] == sources[0]
  assert len(set(clusters)) == 3


def test_scores_read_as_a_person_says_them(tmp_path):
  fake_workdir.write(tmp_path / 'a', num_rounds=2)
  fake_workdir.write(tmp_path / 'b', num_rounds=2, score='mse')
  accuracy, mse = (run_lib.read(tmp_path / name) for name in 'ab')
  assert style.score_text(accuracy, 0.9264) == '92.6 %'
  assert style.score_text(mse, 12.345) == '12.3'
  assert style.score_text(mse, 123.4) == '123'
  assert style.score_text(mse, 40.0) == '40.0'


def test_the_callers_settings_come_back():
  with matplotlib.rc_context({'font.size': 31.0}):
    with style.applied():
      assert matplotlib.rcParams['font.size'] < 31
    assert matplotlib.rcParams['font.size'] == 31


@pytest.mark.parametrize(
  ('higher', 'values', 'scale'),
  [
    (True, [0.001, 0.9], 'linear'),
    (False, [1.0, 2.0], 'linear'),
    (False, [1.0, 100.0], 'log'),
    (False, [0.0, 100.0], 'linear'),
    (True, [0.5], 'linear'),
  ],
)
def test_all_scores_fit(tmp_path, higher, values, scale):
  score = 'accuracy' if higher else 'mse'
  fake_workdir.write(tmp_path, num_rounds=2, score=score)
  axes = style.new_figure(3, 2, 'title').subplots()
  style.fit_scores(run_lib.read(tmp_path), axes, np.array(values))
  low, high = axes.get_ylim()
  assert axes.get_yscale() == scale
  assert low <= min(values) < high
  assert low < max(values) < high
