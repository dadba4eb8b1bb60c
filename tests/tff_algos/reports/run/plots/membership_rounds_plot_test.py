"""Mean memberships round by round."""

import numpy as np

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import membership_rounds_plot


def test_means_of_the_clients_of_each_mixture(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  final = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
  fake_workdir.write_memberships(tmp_path, {0: np.full([4, 2], 0.5), 4: final})
  figure = membership_rounds_plot.draw(run_lib.read(tmp_path))
  upright, rotated = figure.axes
  assert upright.get_title() == '90 % upright (2 clients)'
  # Two dashed lines at the true shares, then a line for each cluster.
  shares = [line.get_ydata()[0] for line in upright.lines[:2]]
  np.testing.assert_allclose(shares, [0.9, 0.1])
  lines = [line.get_ydata() for line in rotated.lines[2:]]
  np.testing.assert_allclose(lines, [[0.5, 0.7], [0.5, 0.3]], rtol=1e-6)
  np.testing.assert_array_equal(rotated.lines[2].get_xdata(), [0, 4])


def test_many_mixtures_are_taken_together_by_main_source():
  share = np.array([0.05, 0.35, 0.6, 0.7, 0.8])
  mixture = np.stack([share, 1 - share], axis=1)
  first, second = membership_rounds_plot.group_by_mixture(mixture, ('a', 'b'))
  assert first.title == 'mostly a (3 clients)'
  np.testing.assert_array_equal(first.members, [2, 3, 4])
  np.testing.assert_allclose(first.shares, [0.7, 0.3])
  assert second.title == 'mostly b (2 clients)'
  np.testing.assert_allclose(second.shares, [0.2, 0.8])


def test_few_mixtures_are_panels_of_their_own():
  mixture = np.array([[0.3, 0.7], [1.0, 0.0], [0.9, 0.1], [0.3, 0.7]])
  groups = membership_rounds_plot.group_by_mixture(mixture, ('a', 'b'))
  assert [group.title for group in groups] == [
    '100 % a (1 client)',
    '90 % a (1 client)',
    '70 % b (2 clients)',
  ]


def test_many_clusters_only_name_the_largest(tmp_path):
  names = tuple(f'source_{i}' for i in range(6))
  run = fake_workdir.read(tmp_path, num_clusters=6, source_names=names)
  figure = membership_rounds_plot.draw(run)
  panels = figure.axes
  assert len(panels) == 6
  # The main source's share, and six clusters.
  assert len(panels[0].lines) == 7
  (text,) = panels[0].texts
  assert text.get_text().startswith('cluster 1: ')


def test_a_long_name_of_a_source_is_wrapped(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2, source_names=('x' * 40, 'b'))
  title = membership_rounds_plot.draw(run).axes[0].get_title()
  assert max(map(len, title.split('\n'))) <= 30


def test_too_many_sources_are_left_out(tmp_path):
  names = tuple(f'source_{i}' for i in range(13))
  run = fake_workdir.read(tmp_path, num_rounds=2, source_names=names)
  assert membership_rounds_plot.draw(run) is None


def test_true_shares_lie_above_the_lines(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  first, *_ = membership_rounds_plot.draw(run).axes
  dashed = {line.get_zorder() for line in first.lines[:2]}
  assert min(dashed) > max(line.get_zorder() for line in first.lines[2:])


def test_clients_of_one_main_source_may_have_one_share():
  groups = membership_rounds_plot.group_by_mixture(np.eye(6), tuple('abcdef'))
  assert groups[5].title == '100 % f (1 client)'
