"""The pictures of regrouped uploads and of recovery over rounds."""

import numpy as np

from tests.testing import fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import panels_plot


def _draw(workdir, one=panels_plot.REGROUPING):
  with style.applied():
    figure = one.draw(run_lib.read(workdir))
  return figure and [axes for axes in figure.axes if axes.axison]


def _texts(axes):
  return {text.get_text() for text in axes.texts}


def test_a_panel_for_each_kind_of_metric(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=20)
  distances, shares, transition, iterations, inertia = _draw(tmp_path)
  apart = 3 * (1 - np.exp(-20 / 5))
  assert _texts(distances) == {
    f'cluster models: {apart:.3g}',
    f'all uploads: {apart + 0.2:.3g}',
    'within clusters: 0.3',
    f'between clusters: {apart + 0.4:.3g}',
  }
  assert _texts(shares) == {
    'received model: 61.4 %',
    'changed clients: 0 %',
  }
  assert shares.yaxis.get_major_formatter()(0.5) == '50'
  (line,) = transition.lines
  np.testing.assert_array_equal(line.get_ydata(), [1.5, *[0] * 19])
  (line,) = iterations.lines
  np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 21))
  np.testing.assert_array_equal(line.get_ydata(), [4, 4, *[2] * 18])
  assert _texts(inertia) == {'2.05'}
  for axes in (distances, shares, transition, iterations, inertia):
    assert axes.get_xlim() == (0, 20)


def test_values_of_wide_range_have_a_logarithmic_axis(tmp_path):
  rows = '\n'.join(f'{r},2,{10.0**-r}' for r in range(1, 5))
  fake_workdir.write(tmp_path, num_rounds=2)
  (tmp_path / 'metrics.csv').write_text(
    f'round,train/k_means_iterations,train/k_means_inertia\n0,,\n{rows}\n'
  )
  iterations, inertia = _draw(tmp_path)
  assert iterations.get_yscale() == 'linear'
  assert inertia.get_yscale() == 'log'
  np.testing.assert_allclose(inertia.get_ylim(), [1e-4 / 1.3, 0.13])


def test_only_the_initial_state(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=0)
  assert _draw(tmp_path) is None


def test_recovery_is_agreement_and_error(tmp_path):
  fake_workdir.write(tmp_path)
  agreement, error = _draw(tmp_path, panels_plot.RECOVERY)
  assert _texts(agreement) == {'ARI: 1', 'NMI: 1', 'purity: 1'}
  # From 0 to 1, and yet no logarithmic axis.
  assert agreement.get_yscale() == 'linear'
  assert len(error.lines) == 1
  path = tmp_path / 'metrics.csv'
  text = path.read_text()
  for key in ('ari', 'nmi', 'purity'):
    text = text.replace(f'membership/{key}', f'gone/{key}')
  path.write_text(text)
  assert len(_draw(tmp_path, panels_plot.RECOVERY)) == 1
