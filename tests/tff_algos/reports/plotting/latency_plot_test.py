"""Numbers of the picture of latencies."""

import numpy as np
import pytest

from tff_algos.reports.plotting import latency_plot, style


def draw(starts, milliseconds):
  with style.applied():
    figure = latency_plot.draw('load', np.array(starts), np.array(milliseconds))
    style.to_png(figure)
  return figure.axes


@pytest.mark.parametrize(
  ('number', 'shown'), [(1, 1), (100, 100), (10_001, 3334)]
)
def test_requests(number, shown):
  milliseconds = np.random.default_rng(0).exponential(size=number)
  over_time, _ = draw(np.arange(number), milliseconds)
  starts, heights = over_time.lines[0].get_data()
  assert len(starts) == shown
  np.testing.assert_array_equal(heights, milliseconds[starts.astype(int)])
  assert heights[0] == milliseconds.max()


def test_percentiles():
  milliseconds = np.arange(1.0, 1002.0)
  _, axes = draw(np.zeros(1001), milliseconds)
  assert [tick.get_text() for tick in axes.get_xticklabels()] == [
    *('p50', 'p90', 'p99', 'p99.9')
  ]
  np.testing.assert_allclose(axes.get_xticks(), [2, 10, 100, 1000])
  assert [text.get_text() for text in axes.texts] == [
    *('501', '901', '991', '1000')
  ]
  places, heights = axes.lines[0].get_data()
  share = np.interp(100, places[::-1], heights[::-1])
  assert share == pytest.approx(991, abs=1.5)
  assert axes.get_title('left') == 'percentiles; slowest 1001 ms'
