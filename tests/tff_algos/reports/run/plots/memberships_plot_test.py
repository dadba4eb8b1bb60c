"""The picture of memberships against the true mixture."""

import numpy as np
import pytest

from tests.testing import csv_files, fake_workdir, pages
from tff_algos.core import sealed_json
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import memberships_plot


def _title(axes):
  return axes.get_title() + axes.get_title('left')


def _names(axes):
  return [text.get_text() for text in axes.get_legend().get_texts()]


def test_two_sources_show_the_matched_cluster(tmp_path):
  with style.applied():
    figure = memberships_plot.draw(fake_workdir.read(tmp_path))
  left, right = figure.axes
  # The fake's cluster 1 stands for the first source.
  assert 'membership of cluster 1' in left.get_title('left')
  estimated, true = (dots.get_offsets() for dots in left.collections[-2:])
  np.testing.assert_allclose(np.unique(true[:, 1]), [0.1, 0.9])
  # The rotated clients first, each group in the order of its clients.
  expected = run_lib.read(tmp_path).memberships[0][:, 1]
  expected = np.concatenate([expected[1::2], expected[::2]])
  np.testing.assert_allclose(estimated[:, 1], expected)
  assert np.abs(estimated[:, 1] - true[:, 1]).max() < 0.25
  assert len(right.collections[0].get_offsets()) == 24


@pytest.mark.parametrize(('clusters', 'sources'), [(3, 2), (2, 3), (4, 4)])
def test_more_of_either_are_stacked(tmp_path, clusters, sources):
  names = tuple(f'source_{i}' for i in range(sources))
  run = fake_workdir.read(tmp_path, num_clusters=clusters, source_names=names)
  truth, estimate = memberships_plot.draw(run).axes
  assert len(truth.containers) == sources
  assert len(estimate.containers) == clusters
  # Matched clusters are stacked in the order of their sources.
  assert _names(estimate)[-1] == 'cluster 1'
  assert (
    estimate.containers[0][0].get_facecolor()
    == truth.containers[0][0].get_facecolor()
  )


def test_planted_clusters_need_not_be_sources(tmp_path):
  """One source of digits, in four planted clusters by label."""
  fake_workdir.write(
    tmp_path, num_clusters=3, num_rounds=4, source_names=tuple('abcd')
  )
  path = tmp_path / 'evaluation' / 'summary.json'
  planted = [f'planted cluster {i}' for i in range(4)]
  summary = {'source_names': ['digits'], 'num_clusters': 3}
  summary |= {'planted_names': planted, 'matched_sources': planted[:3]}
  sealed_json.write(path, summary)
  truth, _ = memberships_plot.draw(run_lib.read(tmp_path)).axes
  assert _names(truth)[::-1] == planted
  colors = {bars[0].get_facecolor() for bars in truth.containers}
  assert len(colors) == 4


def test_without_the_truth_only_the_estimate_is_drawn(tmp_path):
  fake_workdir.write(tmp_path)
  fake_workdir.forget_mixture(tmp_path)
  assert len(memberships_plot.draw(run_lib.read(tmp_path)).axes) == 1


def _forget_membership(workdir, *clients):
  """Clears the memberships of clients, as if they were never sampled."""
  path = workdir / 'evaluation' / 'clients.csv'
  rows = csv_files.read(path)
  for row in rows:
    if row['client_id'] in clients:
      row.update({name: 0.0 for name in row if name.startswith('membership')})
  csv_files.write(path, rows)


def test_clients_that_were_never_sampled_have_no_dot_but_a_word(tmp_path):
  whole = fake_workdir.read(tmp_path, num_rounds=2)
  assert 'never sampled' not in memberships_plot.PICTURE.caption(whole)
  _, right = memberships_plot.draw(whole).axes
  membership, mixture = whole.memberships
  errors = np.abs(membership[:, 1] - mixture[:, 0])
  assert _title(right) == f'mean error {100 * errors.mean():.1f} points'
  _forget_membership(tmp_path, 'client_0003')
  run = run_lib.read(tmp_path)
  left, right = memberships_plot.draw(run).axes
  filled, true = (dots.get_offsets() for dots in left.collections[-2:])
  assert (len(filled), len(true)) == (23, 24)
  assert len(right.collections[0].get_offsets()) == 23
  error = np.delete(errors, 3).mean()
  title = f'mean error {100 * error:.1f} points of 23 clients'
  assert _title(right).replace('\n', ' ') == title
  names = [label.get_text() for label in left.get_xticklabels()]
  assert names.index('client_0003') not in filled[:, 0]
  assert 'never sampled have no membership' in memberships_plot.PICTURE.caption(
    run
  )


def test_a_stack_of_a_client_that_was_never_sampled_is_grey(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2, num_clusters=3)
  _forget_membership(tmp_path, 'client_0003')
  _, estimate = memberships_plot.draw(run_lib.read(tmp_path)).axes
  (grey,) = estimate.containers[0]
  assert _names(estimate)[-1] == 'not sampled yet'
  place = round(grey.get_x() + grey.get_width() / 2)
  assert estimate.get_xticklabels()[place].get_text() == 'client_0003'


@pytest.mark.parametrize('count', [2, 24])
def test_long_names_and_many_clusters_are_not_cut_off(tmp_path, count):
  names = tuple(f'{index:02d}{"name" * 12}' for index in range(count))
  with style.applied():
    run = fake_workdir.read(
      tmp_path, num_rounds=2, num_clusters=count, source_names=names
    )
    figure = memberships_plot.draw(run)
    pages.check_picture(style.to_png(figure))
