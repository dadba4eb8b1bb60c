"""Heat maps: cells, frames, names."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.plotting import heat_map, style


@pytest.fixture
def axes():
  return style.new_figure(3, 'title').subplots()


def test_texts_are_read_on_dark_and_on_light(axes):
  heat_map.draw(axes, np.array([[1.0, 0.1], [np.nan, 0.0]]), ['ab', 'cd'])
  texts = {text.get_text(): text for text in axes.texts}
  assert texts['a'].get_color() == 'white'
  assert {texts[name].get_color() for name in 'bcd'} == {style.INK}
  assert texts['b'].get_position() == (1, 0)


def test_frame_makes_its_own_text_bold(axes):
  heat_map.draw(axes, np.zeros([2, 2]), ['ab', 'cd'])
  heat_map.frame(axes, 0, 1)
  bold = [t.get_text() for t in axes.texts if t.get_fontweight() == 'bold']
  assert bold == ['b']
  (patch,) = axes.patches
  assert patch.get_xy() == pytest.approx((0.53, -0.45))


@pytest.mark.parametrize(
  ('names', 'turned'),
  [
    (['short'] * 8, False),
    (['a_name_of_some_length'] * 4, False),
    (['a_name_of_some_length'] * 8, True),
    (['source_12'] * 10, False),
    (['source_12'] * 11, True),
  ],
)
def test_long_names_of_narrow_columns_are_turned(axes, names, turned):
  heat_map.draw(axes, np.zeros([1, len(names)]), [names])
  heat_map.name_columns(axes, names, ['#0072b2'] * len(names))
  labels = axes.get_xticklabels()
  assert [label.get_text() for label in labels] == names
  assert {bool(label.get_rotation()) for label in labels} == {turned}
  assert labels[0].get_color() == '#0072b2'


def test_clusters_stand_in_the_order_of_their_sources(axes, tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=8)
  heat_map.draw(axes, np.zeros([1, 2]), ['ab'])
  heat_map.number_clusters(run, axes)
  heat_map.name_rows(axes, ['row'], [style.INK])
  labels = axes.get_xticklabels()
  assert [label.get_text() for label in labels] == ['1', '0']
  assert labels[0].get_color() == style.planted_colors(run)[0]
  assert [label.get_text() for label in axes.get_yticklabels()] == ['row']


def test_thinning_keeps_both_ends():
  np.testing.assert_array_equal(heat_map.thin(9, 3), [0, 4, 8])
  np.testing.assert_array_equal(heat_map.thin(2, 3), [0, 1])
  np.testing.assert_array_equal(heat_map.thin(1, 3), [0])
