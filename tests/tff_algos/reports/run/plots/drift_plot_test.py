"""The picture of the drift from the parent run."""

import numpy as np

from tests.testing import fake_drift, fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import drift_plot


def _draw(workdir):
  with style.applied():
    figure = drift_plot.draw(run_lib.read(workdir))
  return figure and figure.axes


def _legend(axes):
  return [text.get_text() for text in axes.get_legend().get_texts()]


def test_shifts_and_losses(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  sources, clients, losses = _draw(tmp_path)
  widths = [bar.get_width() for bar in sources.patches]
  np.testing.assert_allclose(widths, [0.05, 0, 0.1, 0.15, 0, 0.3])
  assert [label.get_text() for label in sources.get_yticklabels()] == [
    *('all examples', 'upright', 'rotated_90')
  ]
  assert _legend(clients) == ['labels: median 0.200', 'features: median 0.300']
  assert _legend(losses) == ['same cluster: 1', 'another cluster: 1', 'new: 1']
  same, changed, new = (
    dots.get_offsets().tolist() for dots in losses.collections
  )
  assert (same, changed) == ([[0.5, 0.6]], [[0.7, 0.9]])
  assert new == [[losses.get_xlim()[0], 2.5]]
  _, far = losses.lines
  assert far.get_ydata() == [1.5, 1.5]


def test_losses_of_wide_range_have_logarithmic_axes(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'drift_clients.csv'
  path.write_text(path.read_text().replace(',2.5,', ',250,'))
  *_, losses = _draw(tmp_path)
  assert (losses.get_xscale(), losses.get_yscale()) == ('log', 'log')


def test_without_losses_and_with_one_source(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  fake_drift.write(tmp_path, sources=('all',), has_losses=False)
  sources, _ = _draw(tmp_path)
  assert len(sources.patches) == 2
  caption = drift_plot.PICTURE.caption(run_lib.read(tmp_path))
  assert 'Losses' not in caption


def test_a_shift_that_is_not_defined_has_no_bars(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  for one in (
    run.drift.content['measures'],
    *run.drift.content['sources'].values(),
  ):
    one['feature_shift'] = None
  sources, *_ = drift_plot.draw(run).axes
  assert len(sources.patches) == 3
  assert _legend(sources) == ['labels']


def test_one_model_has_no_clusters(tmp_path):
  fake_workdir.write(tmp_path, num_clusters=1, num_rounds=2)
  *_, losses = _draw(tmp_path)
  assert _legend(losses) == ['stayed: 2', 'new: 1']
  assert losses.get_title(loc='left') == 'loss of the global model'
