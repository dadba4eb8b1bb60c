"""What a sweep consists of, written and read."""

import json

import pytest

from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.reports.sweep import plan as plan_lib

_AXES = (
  plan_lib.Axis('config file', '', ('digits', 'mnist')),
  plan_lib.Axis('model.hidden_sizes', 'hidden_sizes', ((64,), (8, 8))),
  plan_lib.Axis('algorithm.proximal_weight', 'proximal_weight', (1e-4, 2)),
)


def test_a_plan_is_read_as_it_was_written(tmp_path):
  runs = (
    plan_lib.PlannedRun('x/seed_0', ('digits', (64,), 1e-4), 0),
    plan_lib.PlannedRun('y/seed_1', ('mnist', (8, 8), 2), 1, 'no room'),
  )
  plan = plan_lib.Plan('name', _AXES, runs)
  fake_sweep.write_plan(tmp_path, plan)
  assert plan_lib.read(tmp_path) == plan


def test_values_with_mappings_can_be_told_apart(tmp_path):
  """As of feature options."""
  values = ({'name': 'a'},), ({'name': 'a', 'missing': 'mean'},)
  runs = [plan_lib.PlannedRun(str(i), (v,), 0) for i, v in enumerate(values)]
  axis = plan_lib.Axis('dataset.source.options.features', 'features', values)
  fake_sweep.write_plan(tmp_path, plan_lib.Plan('x', (axis,), tuple(runs)))
  found = plan_lib.read(tmp_path)
  assert {run.values for run in found.runs} == {
    (value,) for value in found.axes[0].values
  }
  assert len({*found.axes[0].values}) == 2
  assert plan_lib.label(found.axes, found.runs[0].values) == (
    "features=({'name': 'a'},)"
  )


def test_a_search_keeps_its_objective_and_what_was_pruned(tmp_path):
  runs = (plan_lib.PlannedRun('x', (0, 0.1), 0, pruned_round=3),)
  axes = (plan_lib.Axis('trial', 'trial', (0,)), _AXES[2])
  search = plan_lib.Search('participating/validation/cluster/mse', False, 2)
  plan = plan_lib.Plan('name', axes, runs, search)
  fake_sweep.write_plan(tmp_path, plan)
  assert plan_lib.read(tmp_path) == plan


def test_label_names_values_unless_they_speak_for_themselves():
  label = plan_lib.label(_AXES, ('digits', (64,), 1e-4))
  assert label == 'digits, hidden_sizes=(64,), proximal_weight=0.0001'
  assert plan_lib.label((), ()) == ''


def test_only_numbers_make_a_numeric_axis():
  assert [axis.is_numeric for axis in _AXES] == [False, False, True]
  assert not plan_lib.Axis('k', 'k', (True, False)).is_numeric
  assert not plan_lib.Axis('k', 'k', (1.0,)).is_numeric


def test_missing_plan_is_named_with_its_command(tmp_path):
  with pytest.raises(errors.DataError, match='sweep.json is missing.*sweep'):
    plan_lib.read(tmp_path)


@pytest.mark.parametrize(
  'content', ['{', '[]', '{"name": "x"}', json.dumps({'name': 1, 'axes': [{}]})]
)
def test_damaged_plan_is_named(tmp_path, content):
  (tmp_path / 'sweep.json').write_text(content)
  with pytest.raises(errors.DataError, match='sweep.json is damaged'):
    plan_lib.read(tmp_path)
