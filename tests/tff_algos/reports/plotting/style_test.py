"""The shared look: labels keep apart, colours keep their meaning."""

import hypothesis
import matplotlib
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from matplotlib import colors

from tests.testing import fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib


@hypothesis.given(
  hypothesis_numpy.arrays(
    np.float64, st.integers(1, 9), elements=st.floats(0, 1)
  )
)
@hypothesis.settings(max_examples=50)
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
  run = fake_workdir.read(tmp_path, num_rounds=2, num_clusters=3)
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
  axes = style.new_figure(2, 'title').subplots()
  style.fit_scores(run_lib.read(tmp_path), axes, np.array(values))
  low, high = axes.get_ylim()
  assert axes.get_yscale() == scale
  assert scale == 'linear' or axes.yaxis.get_major_formatter()(10) == '10'
  assert low <= min(values) < high
  assert low < max(values) < high


def test_sources_have_different_colours():
  rgb = np.array([colors.to_rgb(one) for one in style.colors(24)])
  apart = np.abs(rgb[:, None] - rgb).max(axis=-1)
  assert apart[np.triu_indices(24, 1)].min() > 0.08


def test_lines_look_different():
  looks = {tuple(style.line_look(index).values()) for index in range(32)}
  assert len(looks) == 32


@pytest.mark.parametrize(
  ('count', 'max_columns', 'shape'),
  [(1, 4, (1, 1)), (4, 4, (1, 4)), (5, 4, (2, 3)), (9, 4, (3, 3))],
)
def test_panels_fill_rows_of_about_the_same_length(count, max_columns, shape):
  assert style.panel_shape(count, max_columns) == shape
  figure = style.new_figure(5, 'x')
  assert len(style.new_panels(figure, count, max_columns)) == count
  assert sum(axes.axison for axes in figure.axes) == count


def test_a_legend_for_more_than_one_line():
  one = style.new_figure_with_legend(3, 'x', ['a'])
  long_names = [
    ' '.join(['a rather long name, much longer than a figure is wide'] * 3),
    'b',
  ]
  two = style.new_figure_with_legend(3, 'x', long_names)
  assert not one.legends
  (legend,) = two.legends
  texts = [text.get_text() for text in legend.get_texts()]
  assert [text.replace('\n', ' ') for text in texts] == long_names
  assert legend.get_window_extent().x1 < two.bbox.x1


def test_lines_that_agree_are_all_seen():
  axes = style.new_figure(5, 'x').subplots()
  x = np.arange(3.0)
  for index in range(6):
    style.draw_line(axes, (index, 6), x, x, (x - 1, x + 1))
  widths = [line.get_linewidth() for line in axes.lines]
  assert widths == [style.line_width(index, 6) for index in range(6)]
  assert widths == sorted(widths, reverse=True)
  assert len(set(widths)) == 6
  assert len(axes.collections) == 6


@pytest.mark.parametrize(
  ('count', 'num_columns'), [(2, 1), (12, 1), (13, 2), (24, 2), (25, 0)]
)
def test_colours_are_named_from_the_bottom_in_columns(count, num_columns):
  axes = style.new_figure(5, 'x').subplots()
  names = ['_night', *map(str, range(1, count))]
  style.name_colors(axes, names, style.colors(count))
  legend = axes.get_legend()
  assert (legend is not None) == bool(num_columns)
  if legend:
    assert legend._ncols == num_columns
    assert [text.get_text() for text in legend.get_texts()] == names[::-1]
    shown = [colors.to_hex(one.get_facecolor()) for one in legend.get_patches()]
    assert shown == [*style.colors(count)][::-1]


def test_titles_of_panels_are_wrapped():
  title = style.wrapped('rounds until participating/test/accuracy = 0.5')
  assert max(map(len, title.split('\n'))) <= 30


def test_a_mixture_fitted_to_unseen_clients_has_a_line(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  columns = run.rounds.columns
  name = 'unseen/test/{}/accuracy'.format
  columns[name('personalized')] = columns[name('cluster')]
  *_, fitted, cluster = style.client_lines(run)
  assert [fitted[0], cluster[0]] == ['unseen, personalized', 'unseen clients']
  assert fitted[2] != cluster[2]


def test_local_models_have_a_line_where_there_are_some(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  names = [name for name, *_ in style.client_lines(run)]
  assert names == ['personalized', 'own cluster', 'unseen clients']
  path = tmp_path / 'metrics.csv'
  header, rest = path.read_text().split('\n', 1)
  renamed = header.replace('test/cluster', 'test/local', 1)
  path.write_text(f'{renamed}\n{rest}')
  names = [name for name, *_ in style.client_lines(run_lib.read(tmp_path))]
  assert names == ['personalized', 'local', 'unseen clients']
