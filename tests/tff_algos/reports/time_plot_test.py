import pytest

from tests.testing import fake_workdir
from tff_algos.reports import run as run_lib
from tff_algos.reports import time_plot


def test_bars_are_the_seconds_of_all_rounds(tmp_path):
  """7 members and 11 training clients; 2 models of 50,890 to each of the 18."""
  fake_workdir.write(tmp_path, num_rounds=4)
  first, *_ = time_plot.draw(run_lib.read(tmp_path)).axes
  communication, computation = (
    [bar.get_height() for bar in part] for part in first.containers
  )
  transfer = 2 * 50_890 / 1e6
  expected = [4 * n * transfer for n in (7 + 1, 2, 11, 10)]
  assert communication == pytest.approx(expected)
  assert computation == pytest.approx([0.404, 0.36, 0.36, 0.36])
  assert first.get_title() == '1 million floats a second'


def test_nothing_to_draw_without_a_committee(tmp_path):
  fake_workdir.write(tmp_path, num_clusters=1)
  assert time_plot.draw(run_lib.read(tmp_path)) is None
