"""The picture of scores against communication."""

import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import cost_plot


def test_floats_are_summed_over_rounds_without_evaluation_too(tmp_path):
  (axes,) = cost_plot.draw(fake_workdir.read(tmp_path, num_rounds=4)).axes
  # Each round sends 2 models down and 1 up to each of 18 clients.
  per_round = 3 * 18 * 50_890
  drawn = axes.lines[0].get_xdata()
  assert drawn == pytest.approx([0, 2 * per_round, 4 * per_round])
  assert axes.xaxis.get_major_formatter()(5e6) == '5M'
  assert axes.get_title('left') + axes.get_title() == (
    'downlink 7.3M + uplink 3.7M = 11.0M floats in 4 rounds'
  )
  # Of equal lines, the thick one lies below.
  first, *others = axes.lines
  for line in others:
    assert line.get_zorder() >= first.get_zorder()
    assert line.get_linewidth() < first.get_linewidth()


def test_models_that_diverged_have_no_last_score(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=4)
  name = 'participating/test/personalized/accuracy'
  run.rounds.columns[name] = ('0.5', '', '0.6', '', 'nan')
  (axes,) = cost_plot.draw(run).axes
  texts = [text.get_text() for text in axes.texts]
  assert 'personalized: diverged by round 4' in texts


def test_nothing_to_draw(tmp_path):
  assert cost_plot.draw(fake_workdir.read(tmp_path, num_rounds=0)) is None
  (tmp_path / 'metrics.csv').write_text('round\n0\n1\n')
  assert cost_plot.draw(run_lib.read(tmp_path)) is None
