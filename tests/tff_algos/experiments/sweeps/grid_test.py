"""Axes and runs of a sweep."""

import pytest

from configs.fed_soft import digits, synthetic
from tests.testing import fake_sweep
from tff_algos.core import errors
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.sweep import plan as plan_lib

_BASE = synthetic.get_config('smoke').to_dict()


def _expand(*options, bases=None, num_seeds=1, **more):
  return grid.expand(bases or {'smoke': _BASE}, options, num_seeds, **more)


def test_without_an_axis_only_seeds_differ():
  found = _expand(num_seeds=2)
  assert [run.folder for run in found.plan.runs] == ['seed_0', 'seed_1']
  assert [config.seed for config in found.configs] == [0, 1]
  assert [config.dataset.seed for config in found.configs] == [0, 1]
  assert found.plan.axes == ()
  assert found.plan.name == _BASE['name']


def test_axes_are_multiplied_and_seeds_come_last():
  found = _expand(
    'algorithm.proximal_weight=0,1e-1',
    'dataset.partition.law=10:90,linear',
    num_seeds=2,
  )
  runs = found.plan.runs
  assert len(runs) == len(found.configs) == 8
  assert runs[3].folder == 'proximal_weight=0,law=linear/seed_1'
  assert runs[3].values == (0.0, 'linear')
  config = found.configs[6]
  assert config.algorithm.options.proximal_weight == 0.1
  assert config.dataset.partition.law == 'linear'
  assert [axis.name for axis in found.plan.axes] == ['proximal_weight', 'law']
  assert _BASE['algorithm']['proximal_weight'] == 1.0  # Not changed in place.


def test_a_fixed_dataset_keeps_its_seed():
  configs = _expand(num_seeds=3, fixed_dataset=True).configs
  assert [config.seed for config in configs] == [0, 1, 2]
  assert {config.dataset.seed for config in configs} == {0}
  configs = _expand('dataset.seed=4,5', fixed_dataset=True).configs
  assert [config.dataset.seed for config in configs] == [4, 5]


def test_config_files_are_the_first_axis():
  bases = {'digits': digits.get_config().to_dict(), 'smoke': _BASE}
  found = _expand('algorithm.estimation_interval=1,2', bases=bases)
  assert [run.folder for run in found.plan.runs] == [
    'digits,estimation_interval=1/seed_0',
    'digits,estimation_interval=2/seed_0',
    'smoke,estimation_interval=1/seed_0',
    'smoke,estimation_interval=2/seed_0',
  ]
  assert found.configs[0].model.name == 'mlp'
  assert found.plan.axes[0].values == ('digits', 'smoke')
  assert found.plan.name == 'Sweep over digits, smoke'


def test_brackets_hold_a_value_together():
  bases = {'digits': digits.get_config().to_dict()}
  found = _expand('model.hidden_sizes=(64,),(8,8),()', bases=bases)
  assert found.plan.axes[0].values == ((64,), (8, 8), ())
  folders = [run.folder for run in found.plan.runs]
  assert len(set(folders)) == 3
  assert all(set('() ').isdisjoint(folder) for folder in folders)


def test_names_are_as_short_as_they_may_be():
  found = _expand(
    'algorithm.local_training.optimizer.name=adam,sgd',
    'algorithm.name=fed_soft',
    'training.num_rounds=3',
  )
  assert [axis.name for axis in found.plan.axes] == [
    *('optimizer.name', 'algorithm.name', 'num_rounds')
  ]


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    (
      ['algorithm.proximal_wait=1,2'],
      "has no key 'proximal_wait'; did you mean 'proximal_weight'",
    ),
    (
      ['algoritm.x=1'],
      "config has no key 'algoritm'; did you mean 'algorithm'",
    ),
    (['algorithm.local_training.x.y=1'], "local_training has no key 'x'"),
    (['algorithm.local_training=1'], 'is a section; name one of its keys: '),
    (['algorithm.proximal_weight=1,-1'], 'proximal_weight=-1: .*>= 0'),
    (['algorithm.num_clusters=2,two'], 'num_clusters'),
    (['dataset.source.options.theta_sprad=1'], 'theta_sprad'),
    (['algorithm.proximal_weight=1,1.0'], 'has a value twice'),
    (['algorithm.proximal_weight'], 'must read KEY=VALUE,VALUE'),
    (['algorithm.proximal_weight='], 'must read KEY=VALUE,VALUE'),
    (['training.num_rounds=1', 'training.num_rounds=2'], 'given twice'),
    (['seed=1,2'], '--num_seeds sets the seeds'),
    (['dataset.seed=1,2'], '--fixed_dataset'),
    (['name=a b,a-b'], 'two cells would lie in name=a-b/seed_0'),
    ([f'name=a,{"b" * 251}'], 'bbb, whose name has 256 bytes; .* allows 255'),
  ],
)
def test_a_wrong_axis_is_one_error_before_anything_runs(options, words):
  with pytest.raises(errors.ConfigError, match=words):
    _expand(*options)


def test_a_key_must_fit_every_config():
  bases = {'smoke': _BASE, 'digits': digits.get_config().to_dict()}
  with pytest.raises(errors.ConfigError, match='digits, use_bias=True: .*bias'):
    _expand('model.use_bias=true,false', bases=bases)


def test_a_plan_replaces_none_of_another_kind(tmp_path):
  runs = (plan_lib.PlannedRun('seed_0', (2,), 0),)
  keys = ('training.x', plan_lib.FOLDER)
  axes = [plan_lib.Axis(key, '', (2,)) for key in keys]
  plans = {
    'grid': plan_lib.Plan('x', (axes[0],), runs),
    'comparison': plan_lib.Plan('x', (axes[1],), runs),
    'search': plan_lib.Plan(
      'x', (axes[0],), runs, plan_lib.Search('mse', False, 1)
    ),
  }
  for kind, plan in plans.items():
    for _ in range(2):
      assert grid.write_plan(plan, tmp_path / kind) == plan
    for other in plans.keys() - {kind}:
      with pytest.raises(
        errors.ConfigError,
        match=f'is the plan of a {kind}.* a {other} would replace.*another',
      ):
        grid.write_plan(plans[other], tmp_path / kind)
    assert plan_lib.read(tmp_path / kind) == plan
  (tmp_path / 'grid' / plan_lib.FILE).write_text('{')  # It is written anew.
  grid.write_plan(plans['grid'], tmp_path / 'grid')


def test_a_plan_replaces_no_run(tmp_path):
  fake_sweep.write_run(tmp_path)
  plan = plan_lib.Plan('x', (), (plan_lib.PlannedRun('seed_0', (), 0),))
  with pytest.raises(
    errors.ConfigError, match='is the folder of a run.* of a grid would'
  ):
    grid.write_plan(plan, tmp_path)
  assert not (tmp_path / plan_lib.FILE).exists()
