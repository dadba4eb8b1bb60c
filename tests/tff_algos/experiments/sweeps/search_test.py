"""Trials of Optuna on an engine that fakes their runs."""

import copy
import itertools
import math
import resource
import signal
import types

import optuna
import pytest

from configs.fed_soft import synthetic
from tests.testing import csv_files
from tff_algos.core import errors, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments.sweeps import (
  grid,
  progress_table,
  ranges,
  run_process,
  runs,
  search,
  side_by_side,
)
from tff_algos.reports.sweep import plan as plan_lib

_METRIC = 'participating/validation/personalized/mse'
_WEIGHT = 'algorithm.proximal_weight'
_BASE = synthetic.get_config('smoke').to_dict()
_BASE['dataset']['splits']['validation_ratio'] = 0.2
_BASE['training']['num_rounds'] = 4
_BASE['training']['selection']['metric'] = _METRIC
_RANGES = {_WEIGHT: ranges.Interval(0.001, 10.0, True)}
_OPTIONS = search.Options(_BASE, _RANGES, 3, 2)
_EPOCHS = 'algorithm.local_training.num_local_epochs'
_TWO_RANGES = _OPTIONS._replace(
  ranges={**_RANGES, _EPOCHS: ranges.Interval(1, 1000)}
)


def _error_of(config, round_num):
  """Returns the least error at weight 1, falling with the rounds."""
  weight = config['algorithm']['proximal_weight']
  return abs(weight - 1.0) + config['seed'] / 100 + 1 / (1 + round_num)


class _Handle:
  """A run that writes a round at each poll."""

  def __init__(self, engine, task):
    self._engine, self._task = engine, task
    self._rounds = -1

  def poll(self):
    self._rounds += 1
    folder, config = self._task.folder, self._task.config
    folder.mkdir(parents=True, exist_ok=True)
    scores = [_error_of(config, number) for number in range(self._rounds + 1)]
    rows = [
      {'round': round_num, _METRIC: score}
      for round_num, score in enumerate(scores)
    ]
    csv_files.write(folder / 'metrics.csv', rows)
    self._engine.num_polls += 1
    if self._engine.num_polls == self._engine.fails_at:
      raise KeyboardInterrupt
    if self._rounds < config['training']['num_rounds']:
      return None
    if self._engine.lost(config):
      raise errors.RuntimeFailureError('lost')
    if self._engine.refused(config):
      return 'refused'
    (folder / 'evaluation').mkdir(exist_ok=True)
    last = {'last': {_METRIC: self._engine.final(scores[-1])}}
    sealed_json.write(folder / 'evaluation' / 'summary.json', last)
    return 'done'

  def terminate(self):
    self._engine.ended.append(self._task.run)

  def end(self):
    pass


class _Engine:
  def __init__(self, capacity=1, fails_at=0):
    self.capacity, self.fails_at, self.num_polls = capacity, fails_at, 0
    self.lost = self.refused = lambda config: False
    self.final = lambda score: score
    self.started, self.ended = [], []

  def start(self, task):
    self.started.append(task.run)
    return _Handle(self, task)


@pytest.fixture(autouse=True, scope='module')
def quick():
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(side_by_side, '_POLL_SECONDS', 0.0)
    patched.setattr(
      runs,
      'is_finished',
      lambda config, folder: (folder / 'evaluation' / 'summary.json').is_file(),
    )
    patched.setattr(
      run_process,
      'read_failure',
      lambda text: errors.DataError(text) if text == 'refused' else None,
    )
    yield


@pytest.fixture(name='whole', scope='module')
def make_whole(quick, tmp_path_factory):
  """The folder of a search that was not interrupted; not to change."""
  folder = tmp_path_factory.mktemp('whole')
  search.search(_OPTIONS, folder, _Engine())
  return folder


@pytest.fixture(name='whole_of_two', scope='module')
def make_whole_of_two(quick, tmp_path_factory):
  """The same with two ranges."""
  folder = tmp_path_factory.mktemp('whole_of_two')
  search.search(_TWO_RANGES, folder, _Engine())
  return folder


def _interrupt(*args):
  raise KeyboardInterrupt


def _study(folder):
  return optuna.load_study(
    study_name='search', storage=f'sqlite:///{folder / "search.db"}'
  )


def _trials(folder):
  return [(one.params, one.value) for one in _study(folder).trials]


def test_a_trial_is_a_run_for_each_seed_and_their_mean(tmp_path):
  engine = _Engine()
  plan = search.search(_OPTIONS, tmp_path, engine)
  assert engine.started == [
    f'trial_{trial:04d}/seed_{seed}' for trial in range(3) for seed in (0, 1)
  ]
  assert plan_lib.read(tmp_path) == plan
  assert plan.search == plan_lib.Search(_METRIC, False, 2)
  assert [axis.key for axis in plan.axes] == ['trial', _WEIGHT]
  for trial, run in zip(_study(tmp_path).trials, plan.runs[::2], strict=True):
    assert run.values == (trial.number, trial.params[_WEIGHT])
    assert 0.001 <= run.values[1] <= 10.0
    config = {'algorithm': {'proximal_weight': run.values[1]}}
    scores = [_error_of({**config, 'seed': seed}, 4) for seed in (0, 1)]
    assert trial.value == pytest.approx(sum(scores) / 2)


def test_an_interrupted_search_goes_on_as_if_it_was_not(whole, tmp_path):
  for fails_at in (3, 9, 14):
    with pytest.raises(KeyboardInterrupt):
      search.search(_OPTIONS, tmp_path, _Engine(fails_at=fails_at))
  engine = _Engine()
  plan = search.search(_OPTIONS, tmp_path, engine)
  assert plan == plan_lib.read(whole)
  assert _trials(tmp_path) == _trials(whole)
  assert len(engine.started) < 6
  more = search.search(_OPTIONS._replace(num_trials=4), tmp_path, engine)
  assert len(more.runs) == 8


def test_hopeless_trials_are_pruned_by_validation(tmp_path):
  engine = _Engine()
  options = _OPTIONS._replace(num_trials=12, num_seeds=1)
  plan = search.search(options, tmp_path, engine)
  pruned = [run for run in plan.runs if run.pruned_round is not None]
  assert pruned
  assert all(run.values[0] >= 5 for run in pruned)
  assert engine.ended == [run.folder for run in pruned]
  trials = _study(tmp_path).trials
  for run in pruned:
    assert run.pruned_round >= 1  # A quarter of four rounds.
    trial = trials[run.values[0]]
    assert trial.state == optuna.trial.TrialState.PRUNED
    earlier = sorted(
      one.intermediate_values[run.pruned_round]
      for one in trials[: trial.number]
      if one.state == optuna.trial.TrialState.COMPLETE
    )
    # Worse than at least half of those before it.
    assert trial.value > earlier[(len(earlier) - 1) // 2]
  runs.check_all_ran(plan)


def test_trials_without_their_plan_are_refused(tmp_path):
  search.search(_OPTIONS, tmp_path, _Engine())
  path, engine = tmp_path / plan_lib.FILE, _Engine()
  whole = path.read_text()
  for lose in (path.unlink, lambda: path.write_text(whole[:99])):
    lose()
    with pytest.raises(errors.DataError, match=r'sweep\.json, .* another'):
      search.search(_OPTIONS, tmp_path, engine)
  assert not engine.started
  path.write_text(whole)
  search.search(_OPTIONS, tmp_path, engine)


def test_a_search_that_ended_before_its_first_plan_goes_on(
  tmp_path, monkeypatch
):
  with monkeypatch.context() as patch:
    patch.setattr(grid, 'write_plan', _interrupt)
    with pytest.raises(KeyboardInterrupt):
      search.search(_OPTIONS, tmp_path, _Engine())
  assert not (tmp_path / plan_lib.FILE).exists()
  assert len(search.search(_OPTIONS, tmp_path, _Engine()).runs) == 6


@pytest.mark.parametrize('ends', ['PRUNED', 'FAIL'])
def test_how_a_trial_ended_is_planned_before_it_ends(
  tmp_path, monkeypatch, ends
):
  def tell_and_end(self, *args, tell=optuna.Study.tell, **state):
    tell(self, *args, **state)
    if state == {'state': optuna.trial.TrialState[ends]}:
      raise KeyboardInterrupt

  options = _OPTIONS._replace(num_trials=12, num_seeds=1)
  engine = _Engine()
  if ends == 'FAIL':
    engine.refused = lambda config: True
  with monkeypatch.context() as patch:
    patch.setattr(optuna.Study, 'tell', tell_and_end)
    with pytest.raises(KeyboardInterrupt):
      search.search(options, tmp_path, engine)
  last = plan_lib.read(tmp_path).runs[-1]
  assert last.error or last.pruned_round is not None


def test_values_are_drawn_by_the_seed_of_the_config(tmp_path):
  drawn = []
  for seed in (0, 0, 5):
    options = _OPTIONS._replace(base={**_BASE, 'seed': seed}, num_seeds=1)
    folder = tmp_path / str(len(drawn))
    plan = search.search(options, folder, _Engine())
    drawn.append([run.values for run in plan.runs])
  assert drawn[0] == drawn[1] != drawn[2]


def test_a_config_without_a_seed_has_its_default(tmp_path):
  base = {key: value for key, value in _BASE.items() if key != 'seed'}
  options = _OPTIONS._replace(base=base, num_trials=1, num_seeds=1)
  folder = tmp_path / 'why?={x}#1'
  found = search.search(options, folder, _Engine())
  (known,) = search.search(
    options._replace(base={**base, 'seed': 0}), tmp_path / 'known', _Engine()
  ).runs
  assert found.runs == (known,)
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'known',
    folder.name,
  ]


@pytest.mark.parametrize(
  ('damage', 'error', 'words'),
  [
    (
      lambda path: path.write_bytes(b'x' * 5000),
      errors.DataError,
      'is damaged',
    ),
    (lambda path: path.mkdir(), errors.InfrastructureError, 'unable to open'),
  ],
)
def test_a_study_that_cannot_be_read_is_named(tmp_path, damage, error, words):
  damage(tmp_path / 'search.db')
  with pytest.raises(error, match=f'search.db .*{words}'):
    search.search(_OPTIONS, tmp_path, _Engine())


def test_a_full_disk_stops_the_search(tmp_path):
  """SQLite takes the limit of a file's size for a disk error."""
  search.search(_OPTIONS._replace(num_trials=1), tmp_path, _Engine())
  engine = _Engine()

  def fill(config):
    del config
    size = (tmp_path / 'search.db').stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, -1))
    return False

  engine.refused = fill
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  try:
    with pytest.raises(errors.InfrastructureError, match='cannot be read or'):
      search.search(_OPTIONS._replace(num_trials=40), tmp_path, engine)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_a_score_that_is_not_a_number_is_not_reported(tmp_path, monkeypatch):
  monkeypatch.setitem(
    globals(), '_error_of', lambda config, number: (0.5, math.nan)[number % 2]
  )
  search.search(_OPTIONS._replace(num_seeds=1), tmp_path, _Engine())
  for trial in _study(tmp_path).trials:
    assert set(trial.intermediate_values.values()) == {0.5}


def test_rounds_are_read_again_only_when_there_are_more(tmp_path, monkeypatch):
  class Patient(_Engine):
    def start(self, task):
      handle = super().start(task)
      quick, polls = handle.poll, itertools.count()
      handle.poll = lambda: None if next(polls) % 4 else quick()
      return handle

  sizes = []

  def read(folder):
    sizes.append((folder, progress_table.num_bytes(folder)))
    return read_rounds(folder)

  read_rounds = progress_table.read_rounds
  # The table counts the rounds by itself.
  monkeypatch.setattr(progress_table, 'num_rounds', lambda folder: 0)
  monkeypatch.setattr(progress_table, 'read_rounds', read)
  plan = search.search(_OPTIONS, tmp_path, Patient())
  assert len(sizes) == len(set(sizes)) == 5 * len(plan.runs)


def test_side_by_side_no_more_trials_are_made(tmp_path):
  engine = _Engine(capacity=3)
  options = _OPTIONS._replace(num_trials=7, num_seeds=1)
  plan = search.search(options, tmp_path, engine)
  assert len(engine.started) == len(set(engine.started)) == len(plan.runs) == 7
  assert all(trial.state.is_finished() for trial in _study(tmp_path).trials)


def test_equal_values_are_not_run_twice(tmp_path):
  engine = _Engine()
  options = _OPTIONS._replace(
    ranges={_WEIGHT: ranges.Choices((0.1, 1.0))}, num_trials=6, num_seeds=1
  )
  plan = search.search(options, tmp_path, engine)
  assert len(engine.started) == 2
  assert {run.values[1] for run in plan.runs} == {0.1, 1.0}
  values = [(one.params[_WEIGHT], one.value) for one in _study(tmp_path).trials]
  assert len(values) == 6
  assert len(set(values)) == 2


def test_values_of_a_pruned_trial_are_not_run_again(tmp_path):
  options = _OPTIONS._replace(
    ranges={_WEIGHT: ranges.Choices((0.9, 1.0, 1.1, 1.2, 1.3, 5.0, 7.0, 9.0))},
    num_trials=60,
    num_seeds=1,
  )
  plan = search.search(options, tmp_path, _Engine())
  pruned = [run for run in plan.runs if run.pruned_round is not None]
  again = [
    trial
    for trial in _study(tmp_path).trials
    if trial.state == optuna.trial.TrialState.PRUNED
  ]
  assert len(again) > len(pruned) > 0
  assert len({run.values[1] for run in pruned}) == len(pruned)


def test_a_refused_run_ends_its_trial_alone(tmp_path):
  engine = _Engine()
  engine.refused = lambda config: config['seed'] == 1
  plan = search.search(_OPTIONS, tmp_path, engine)
  assert [run.error for run in plan.runs] == ['', 'refused'] * 3
  assert {trial.state.name for trial in _study(tmp_path).trials} == {'FAIL'}
  with pytest.raises(errors.UserError, match='3 of 6 runs'):
    runs.check_all_ran(plan)


def test_a_lost_run_is_resumed_by_the_next_call(whole, tmp_path):
  engine = _Engine()
  engine.lost = lambda config: config['seed'] == 1
  plan = search.search(_OPTIONS, tmp_path, engine)
  assert [run.error for run in plan.runs] == ['', 'lost'] * 3
  with pytest.raises(errors.UserError, match='3 of 6 runs'):
    runs.check_all_ran(plan)
  again = _Engine()
  plan = search.search(_OPTIONS, tmp_path, again)
  assert again.started == [f'trial_{trial:04d}/seed_1' for trial in range(3)]
  assert plan == plan_lib.read(whole)
  assert _trials(tmp_path) == _trials(whole)


# Of the values of the three trials, two each.
@pytest.mark.parametrize('fails_at', [1, 2, 4, 5])
def test_a_search_interrupted_between_two_values_goes_on(
  whole_of_two, tmp_path, monkeypatch, fails_at
):
  drawn = []

  def interrupt(self, name, distribution, suggest=optuna.Trial._suggest):
    drawn.append(name)
    if len(drawn) == fails_at:
      raise KeyboardInterrupt
    return suggest(self, name, distribution)

  with monkeypatch.context() as patch:
    patch.setattr(optuna.Trial, '_suggest', interrupt)
    with pytest.raises(KeyboardInterrupt):
      search.search(_TWO_RANGES, tmp_path, _Engine())
  search.search(_TWO_RANGES, tmp_path, _Engine())
  assert _trials(tmp_path) == _trials(whole_of_two)


def test_a_trial_without_a_score_has_no_objective_and_no_second_run(tmp_path):
  engine = _Engine()
  engine.final = lambda score: float('nan')
  options = _OPTIONS._replace(
    ranges={_WEIGHT: ranges.Choices((0.1, 1.0))}, num_trials=8, num_seeds=1
  )
  search.search(options, tmp_path, engine)
  trials = _study(tmp_path).trials
  assert len(trials) == 8
  assert not [one.value for one in trials if one.state.name == 'COMPLETE']
  assert len(engine.started) == len({str(one.params) for one in trials}) == 2


def test_another_search_does_not_share_a_folder(tmp_path):
  search.search(_OPTIONS._replace(num_trials=1), tmp_path, _Engine())
  for change, words in (
    ({'num_seeds': 3}, 'another number of seeds, 2; got 3'),
    ({'fixed_dataset': True}, 'another --fixed_dataset, false; got true'),
    (
      {'ranges': {_WEIGHT: ranges.Interval(0.1, 1.0)}},
      'another set of ranges',
    ),
    (
      {'base': {**_BASE, 'seed': 0, 'name': 'other'}},
      'another config.name, .*Take another --workdir',
    ),
  ):
    with pytest.raises(errors.ConfigError, match=words):
      search.search(_OPTIONS._replace(**change), tmp_path, _Engine())


def test_a_search_with_choices_goes_on(tmp_path):
  name = 'algorithm.local_training.optimizer.name'
  options = _OPTIONS._replace(
    ranges={**_RANGES, name: ranges.Choices(('sgd', 'adam'))}, num_seeds=1
  )
  search.search(options, tmp_path, _Engine())
  more = search.search(options._replace(num_trials=5), tmp_path, _Engine())
  assert len(more.runs) == 5


def test_a_search_takes_no_folder_of_a_grid(tmp_path):
  expanded = grid.expand({'default': _BASE}, [f'{_WEIGHT}=0.1,1.0'], 1)
  grid.write_plan(expanded.plan, tmp_path)
  with pytest.raises(errors.ConfigError, match='is the plan of a grid'):
    search.search(_OPTIONS, tmp_path, _Engine())
  assert [path.name for path in tmp_path.iterdir()] == [plan_lib.FILE]


def test_a_search_takes_no_file(tmp_path):
  place = tmp_path / 'file'
  place.write_text('')
  with pytest.raises(errors.DataError, match='is a file, where a folder'):
    search.search(_OPTIONS, place, _Engine())


def _changed(section, **values):
  base = copy.deepcopy(_BASE)
  target = base
  for name in section.split('.'):
    target = target[name]
  target.update(values)
  return base


@pytest.mark.parametrize(
  'metric',
  [
    'participating/test/personalized/mse',
    'held_out/mean/best_cluster/mse',
    'unseen/test/cluster/mse',
    'train/loss',
  ],
)
def test_a_test_score_is_no_objective(metric):
  base = _changed('training.selection', metric=metric)
  with pytest.raises(
    errors.ConfigError, match=f"is '{metric}', which is no validation score"
  ):
    search.check(_OPTIONS._replace(base=base))


def test_ranges_and_datasets_are_checked_before_anything_runs():
  search.check(_OPTIONS)
  wrong = {_WEIGHT: ranges.Interval(-1.0, 1.0)}
  with pytest.raises(errors.ConfigError, match='proximal_weight=-1.0: .*>= 0'):
    search.check(_OPTIONS._replace(ranges=wrong))
  base = _changed('dataset.splits', validation_ratio=0.0)
  with pytest.raises(errors.ConfigError, match='needs datasets with a valid'):
    search.check(_OPTIONS._replace(base=base))


def _fake_datasets(monkeypatch, task):
  """Fakes the datasets of a task; returns the list of their configs."""

  class Dataset:
    schema = types.SimpleNamespace(task=task)

    def __enter__(self):
      return self

    def __exit__(self, *_):
      pass

  built = []

  def build(config, folder):
    built.append(config)
    return folder

  monkeypatch.setattr(runs, 'build_shared', build)
  monkeypatch.setattr(
    dataset_lib.FederatedDataset, 'open', lambda path: Dataset()
  )
  return built


@pytest.mark.parametrize(
  ('task', 'score', 'higher'),
  [('classification', 'accuracy', True), ('regression', 'mse', False)],
)
def test_the_default_objective_is_the_score_of_the_task(
  tmp_path, monkeypatch, task, score, higher
):
  _fake_datasets(monkeypatch, task)
  base = _changed('training.selection', metric='')
  found = search._objective(_OPTIONS._replace(base=base), tmp_path)
  metric = f'participating/validation/personalized/{score}'
  assert found == plan_lib.Search(metric, higher, 2)


def test_a_search_that_goes_on_builds_no_dataset_for_its_objective(
  tmp_path, monkeypatch
):
  built = _fake_datasets(monkeypatch, 'regression')
  options = _OPTIONS._replace(
    base=_changed('training.selection', metric=''), num_trials=1, num_seeds=1
  )
  plan = search.search(options, tmp_path, _Engine())
  assert search.search(options, tmp_path, _Engine()) == plan
  other = copy.deepcopy(options.base)
  other['dataset']['splits']['validation_ratio'] = 0.3
  with pytest.raises(errors.ConfigError, match='another config.dataset,'):
    search.search(options._replace(base=other), tmp_path, _Engine())
  assert len(built) == 1


def test_plugins_reach_the_runs(tmp_path):
  seen = []

  class Engine(_Engine):
    def start(self, task: run_process.Task):
      seen.append(task.plugins)
      return super().start(task)

  options = _OPTIONS._replace(num_trials=1, num_seeds=1, plugins=('json',))
  search.search(options, tmp_path, Engine())
  assert seen == [('json',)]


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'optuna', None)
  with pytest.raises(errors.UserError, match="the extra 'search'"):
    search.search(_OPTIONS, tmp_path, _Engine())
