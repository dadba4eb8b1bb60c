"""The order of clients, and how they are thinned out."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.plotting import style
from tff_algos.reports.run import client_order
from tff_algos.reports.run import run as run_lib


def test_by_main_source_then_by_index(tmp_path):
  # The fake plants its sources in turn.
  run = fake_workdir.read(tmp_path, num_clients=5, num_rounds=2)
  order = client_order.by_planted_source(run, np.zeros(5, int))
  np.testing.assert_array_equal(order.clients, [0, 2, 4, 1, 3])
  np.testing.assert_array_equal(order.groups, [0, 0, 0, 1, 1])
  assert order.names == ('upright', 'rotated_90')


def test_by_cluster_where_nothing_is_planted(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=2)
  fake_workdir.forget_mixture(tmp_path)
  order = client_order.by_planted_source(
    run_lib.read(tmp_path), np.array([1, -1, 0, 1])
  )
  np.testing.assert_array_equal(order.clients, [1, 2, 0, 3])
  assert order.names == ()


@pytest.mark.parametrize('planted', [True, False])
def test_groups_are_parted_and_named(tmp_path, planted, monkeypatch):
  monkeypatch.setattr(client_order, '_MAX_CLIENTS', 5)
  fake_workdir.write(tmp_path, num_clients=6, num_rounds=2)
  if not planted:
    fake_workdir.forget_mixture(tmp_path)
  order = client_order.by_planted_source(
    run_lib.read(tmp_path), np.array([0, 1] * 3)
  )
  axes = style.new_figure(3, 'title').subplots()
  rows = order.thinned()
  np.testing.assert_array_equal(rows, [0, 1, 2, 3, 5])
  order.part_groups(axes, rows)
  order.name_groups(axes, rows)
  (line,) = axes.lines
  np.testing.assert_array_equal(line.get_ydata(), [2.5, 2.5])
  names = [label.get_text() for label in axes.get_yticklabels()]
  # Without names of groups, the clients have theirs.
  ids = [f'client_{index:04d}' for index in (0, 2, 4, 1, 5)]
  assert names == (['upright', 'rotated_90'] if planted else ids)
  places = [1, 3.5] if planted else range(5)
  np.testing.assert_array_equal(axes.get_yticks(), places)
  assert axes.get_ylabel().startswith('5 of 6 clients, by ')
