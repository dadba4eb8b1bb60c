"""Search for the best values of config keys by Optuna.

A trial is one combination of values, with a run for each seed, one after the
other. Its objective is a validation score after the last round, averaged over
seeds. A trial whose best score so far, over all its seeds, is worse than the
median of the finished trials at the same seed and round is pruned: its run
ends. The study lies in `search.db`
(SQLite) of the sweep's folder, and the same command resumes it.
"""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors, extras, sealed_json, seeds
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.evaluation import summaries
from tff_algos.experiments import experiment
from tff_algos.experiments.sweeps import (
  grid,
  progress_table,
  ranges,
  run_process,
  runs,
  side_by_side,
)
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.training import selection

_FILE = 'search.db'
_NAME = 'search'
_TRIAL = 'trial'
# Trials that are never pruned, before there is a median to compare with; and
# the part of a run's rounds in which none is.
_NUM_UNPRUNED = 5
_UNPRUNED_SHARE = 0.25


class Options(NamedTuple):
  """Options of a search.

  Attributes:
    base: Nested values of the config file.
    ranges: Dotted key -> its range.
    num_trials: Number of trials, with those of earlier calls.
    num_seeds: Runs of a trial, with the seeds 0, 1, ...
    fixed_dataset: As of `grid.expand`.
    plugins: Plug-ins that the config needs.
  """

  base: Mapping[str, Any]
  ranges: Mapping[str, ranges.Range]
  num_trials: int
  num_seeds: int
  fixed_dataset: bool = False
  plugins: Sequence[str] = ()

  def config(
    self, values: Mapping[str, Any], seed: int
  ) -> experiment.ExperimentConfig:
    """Returns the experiment of a run.

    Raises:
      ConfigError: If a value does not fit the config.
    """
    label = ', '.join(f'{key}={value}' for key, value in values.items())
    return grid.experiment_of(
      self.base, values, seed, fixed_dataset=self.fixed_dataset, label=label
    )


def check(options: Options) -> None:
  """Checks the ends of all ranges, and that validation scores are searched for.

  Raises:
    ConfigError: If a value does not fit the config, the datasets have no
      validation examples, or `config.training.selection.metric` is no
      validation score.
  """
  for key, one in options.ranges.items():
    for value in one.ends:
      config = options.config({key: value}, 0)
      if not config.dataset.splits.validation_ratio:
        criterion = plan_lib.CRITERIA[plan_lib.VALIDATION]
        raise errors.ConfigError(
          f'--search needs datasets with {criterion.needs}; that of '
          f'{key}={value} has none'
        )
      metric = config.training.selection.metric
      if metric and 'validation' not in metric.split('/'):
        raise errors.ConfigError(
          f'config.training.selection.metric is {metric!r}, which is no '
          'validation score: a search for the best test score makes it '
          'optimistically biased. Take a metric such as '
          "'participating/validation/cluster/accuracy', or '' for that of the "
          'personalized models'
        )


def search(
  options: Options,
  folder: str | os.PathLike[str],
  engine: side_by_side.Engine,
) -> plan_lib.Plan:
  """Executes the trials that are left; returns the plan, with its results.

  Args:
    options: Options of the search, checked.
    folder: Folder of the search.
    engine: Where the runs are executed.

  Raises:
    ConfigError: If the folder holds a search with other options, a run or
      another kind of sweep.
    DataError: If it is a file, or holds trials without their plan or a damaged
      `search.db`.
    InfrastructureError: As `side_by_side.execute`.
    UserError: If Optuna is not installed, or the first dataset cannot be built.
  """
  workdir = pathlib.Path(folder).absolute()
  with extras.importing('search', '--search=optuna'):
    import optuna
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  grid.check_kind(workdir, grid.SEARCH)
  objective = _objective(options, workdir)
  with _study_errors(optuna, workdir / _FILE):
    queue = _TrialQueue(optuna, options, objective, workdir)
    queue.write_plan()
    side_by_side.execute(queue, engine)
  return queue.write_plan()


@contextlib.contextmanager
def _study_errors(optuna: Any, path: pathlib.Path) -> Iterator[None]:
  """Explains errors of a study's file in a block."""
  import sqlalchemy.exc

  try:
    yield
  except (
    sqlalchemy.exc.DatabaseError,
    optuna.exceptions.StorageInternalError,
  ) as error:
    is_of_optuna = isinstance(error, optuna.exceptions.StorageInternalError)
    found = error.__cause__ if is_of_optuna else error
    if isinstance(found, sqlalchemy.exc.OperationalError):
      raise errors.InfrastructureError(
        f'{path} cannot be read or written: {found.orig}. Free some space and '
        'run the same command again to resume'
      ) from error
    raise errors.DataError(
      f'{path} is damaged: {found}. Put a copy of it back, or take another '
      '--workdir'
    ) from error


def _objective(options: Options, workdir: pathlib.Path) -> plan_lib.Search:
  """Returns the metric by which training selects its best round.

  For a search that is resumed it is that of its plan: options that differ are
  refused when its study is opened, before a dataset is built for them.
  """
  if (workdir / _FILE).exists():
    with contextlib.suppress(errors.DataError):
      earlier = plan_lib.read(workdir).search
      if earlier is not None:
        return earlier
  config = options.config({}, 0)
  chosen = config.training.selection
  metric = chosen.metric
  if not metric:
    shared = runs.build_shared(config.dataset, workdir / 'datasets')
    with dataset_lib.FederatedDataset.open(shared / 'dataset') as dataset:
      task = dataset.schema.task
    score = 'accuracy' if task == model_lib.CLASSIFICATION else 'mse'
    criterion = plan_lib.CRITERIA[plan_lib.VALIDATION]
    metric = f'{criterion.metric}/{score}'
  return plan_lib.Search(
    metric, not selection.is_smallest(metric, chosen), options.num_seeds
  )


class _Trial:
  """A trial that is not finished.

  Attributes:
    number: Its number, from 0.
    values: Dotted key -> value.
    optuna_trial: Optuna's trial.
    reported: Steps that Optuna knows.
    scores: Objective of each finished seed.
    is_running: Whether a run of it is executed.
    num_bytes: Size of this run's `metrics.csv` when it was last read.
  """

  def __init__(self, optuna_trial: Any, values: Mapping[str, Any]):
    self.number: int = optuna_trial.number
    self.values = values
    self.optuna_trial = optuna_trial
    self.reported: set[int] = set()
    self.scores: list[float] = []
    self.is_running = False
    self.num_bytes = 0


class _TrialQueue:
  """Trials of a study as runs; see `side_by_side.Queue`."""

  def __init__(
    self,
    optuna: Any,
    options: Options,
    objective: plan_lib.Search,
    workdir: pathlib.Path,
  ):
    self._optuna = optuna
    self._states = optuna.trial.TrialState
    self._options = options
    self._objective = objective
    self._workdir = workdir
    self._num_rounds = options.config({}, 0).training.num_rounds
    self._planned: dict[str, plan_lib.PlannedRun] = {}
    self._open: dict[int, _Trial] = {}
    self._study = self._open_study()
    self._resume()

  @property
  def num_rounds(self) -> int:
    """Returns the rounds of all trials that are not finished."""
    num_ended = len(self._study.trials) - len(self._open)
    num_left = max(len(self._open), self._options.num_trials - num_ended)
    return self._num_rounds * self._options.num_seeds * num_left

  def take(self) -> run_process.Task | None:
    """Returns the next run of an open trial, or the first of a new one."""
    while True:
      waiting = (one for one in self._open.values() if not one.is_running)
      trial = next(waiting, None) or self._ask()
      if trial is None:
        return None
      seed = len(trial.scores)
      if seed == self._options.num_seeds:
        self._tell(trial)
        continue
      run = self._plan_run(trial, seed)
      try:
        config = self._options.config(trial.values, seed)
      except errors.ConfigError as error:
        self._refuse(trial, run, error)
        continue
      if runs.is_finished(config, self._workdir / run):
        trial.scores.append(self._score(run))
        continue
      trial.is_running = True
      trial.num_bytes = 0
      self.write_plan()
      return side_by_side.make_task(
        config, self._workdir, run, self._options.plugins
      )

  def is_wanted(self, task: run_process.Task) -> bool:
    """Reports the rounds of a run; returns False if its trial is pruned."""
    trial = self._trial_of(task)
    # To read all rounds at every poll would take a core from the runs.
    num_bytes = progress_table.num_bytes(task.folder)
    if num_bytes == trial.num_bytes:
      return True
    trial.num_bytes = num_bytes
    rounds = enumerate(progress_table.read_rounds(task.folder))
    for round_num, row in rounds:
      score = summaries.whole(row, self._objective.metric)
      step = len(trial.scores) * (self._num_rounds + 1) + round_num
      if math.isnan(score) or step in trial.reported:
        continue
      trial.reported.add(step)
      trial.optuna_trial.report(score, step)
      if trial.optuna_trial.should_prune():
        self._prune(trial, task, round_num)
        return False
    return True

  def settle(
    self, task: run_process.Task, error: errors.UserError | None
  ) -> None:
    """Receives the end of a run that was not pruned."""
    trial = self._trial_of(task)
    trial.is_running = False
    if isinstance(error, errors.RuntimeFailureError):
      # Its process was lost, perhaps for lack of memory: the next call goes on.
      self._set_aside(trial, task.run, error)
    elif error is not None:
      self._refuse(trial, task.run, error)
    else:
      trial.scores.append(self._score(task.run))

  def write_plan(self) -> plan_lib.Plan:
    """Writes `sweep.json` with all runs so far; returns it."""
    planned = tuple(self._planned.values())
    keys = list(self._options.ranges)
    columns = zip(*(run.values for run in planned), strict=True)
    distinct = [tuple(dict.fromkeys(column)) for column in columns]
    axes = [
      plan_lib.Axis(key, name, values)
      for key, name, values in zip(
        [_TRIAL, *keys],
        [_TRIAL, *grid.names(keys)],
        distinct or [()] * (1 + len(keys)),
        strict=True,
      )
    ]
    plan = plan_lib.Plan(
      str(self._options.base.get('name', '')),
      tuple(axes),
      planned,
      self._objective,
    )
    return grid.write_plan(plan, self._workdir)

  def _open_study(self) -> Any:
    """Opens or creates the study.

    Raises:
      ConfigError: If it is of other options.
    """
    optuna, path = self._optuna, self._workdir / _FILE
    durable.make_folder(self._workdir)
    study = optuna.create_study(
      storage=f'sqlite:///file:{parse.quote(str(path))}?uri=true',
      study_name=_NAME,
      direction='maximize' if self._objective.higher_is_better else 'minimize',
      pruner=optuna.pruners.MedianPruner(
        n_startup_trials=_NUM_UNPRUNED,
        n_warmup_steps=int(_UNPRUNED_SHARE * self._num_rounds),
      ),
      load_if_exists=True,
    )
    # As it is stored: a tuple is a list.
    wanted = json.loads(json.dumps(self._identity()))
    stored = study.user_attrs.get('identity', wanted)
    for name, value in wanted.items():
      if stored.get(name) != value:
        raise errors.ConfigError(
          f'{self._workdir} has a search with another {name}, '
          f'{json.dumps(stored.get(name))}; got {json.dumps(value)}. Take '
          'another --workdir'
        )
    study.set_user_attr('identity', wanted)
    return study

  def _identity(self) -> dict[str, Any]:
    """Returns what may not change while a search is resumed."""
    config = experiment.effective(
      config_lib.to_dict(self._options.config({}, 0))
    )
    return {
      **{f'config.{key}': value for key, value in config.items()},
      'metric': self._objective.metric,
      'set of ranges': [
        [key, type(one).__name__, list(one)]
        for key, one in self._options.ranges.items()
      ],
      'number of seeds': self._options.num_seeds,
      '--fixed_dataset': self._options.fixed_dataset,
    }

  def _resume(self) -> None:
    """Reads the runs of earlier calls, and opens their unfinished trials.

    Raises:
      DataError: If their plan is missing or damaged.
    """
    if not self._study.trials:  # A call may have ended before its first plan.
      return
    try:
      earlier = plan_lib.read(self._workdir).runs
    except errors.DataError:
      raise errors.DataError(
        f'{self._workdir / plan_lib.FILE}, the plan of the trials in {_FILE}, '
        'is missing or damaged. Put a copy of it back, or take another '
        '--workdir'
      ) from None
    self._planned = {run.folder: run for run in earlier}
    for frozen in self._study.trials:
      if not frozen.state.is_finished():
        resumed = self._complete(frozen)
        trial = _Trial(resumed, self._decode(resumed.params))
        trial.reported = set(frozen.intermediate_values)
        self._open[trial.number] = trial

  def _complete(self, frozen: Any) -> Any:
    """Returns an unfinished trial, with the values that were not drawn yet."""
    self._seed_sampler(frozen.number)
    # Optuna has no other way to go on with a trial.
    trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
    for key, distribution in self._distributions().items():
      if key in frozen.params and not distribution.single():
        # Drawn again, so that the values after it are those that followed.
        self._study.sampler.sample_independent(
          self._study, frozen, key, distribution
        )
      trial._suggest(key, distribution)
    return trial

  def _seed_sampler(self, number: int) -> None:
    """Seeds the draws of a trial: the same after an interruption."""
    seed = self._options.base.get('seed', 0)
    draw = seeds.numpy_generator(seed, 'search', number)
    self._study.sampler = self._optuna.samplers.TPESampler(
      seed=int(draw.integers(2**31))
    )

  def _ask(self) -> _Trial | None:
    """Returns a new trial; None if there are enough."""
    while len(self._study.trials) < self._options.num_trials:
      self._seed_sampler(len(self._study.trials))
      asked = self._study.ask(self._distributions())
      twin = next(
        (
          one
          for one in self._study.get_trials(
            states=(self._states.COMPLETE, self._states.PRUNED)
          )
          if one.params == asked.params
        ),
        None,
      )
      if twin is None:
        trial = _Trial(asked, self._decode(asked.params))
        self._open[trial.number] = trial
        return trial
      logging.info('Trial %d is as trial %d.', asked.number, twin.number)
      # A pruned trial has a value, too, its last one, which may not be told.
      value = twin.value if twin.state == self._states.COMPLETE else None
      self._study.tell(asked.number, value, twin.state)
    return None

  def _distributions(self) -> dict[str, Any]:
    made = {}
    for key, one in self._options.ranges.items():
      if isinstance(one, ranges.Choices):
        # Optuna stores no lists.
        spelled = tuple(json.dumps(choice) for choice in one.ends)
        made[key] = self._optuna.distributions.CategoricalDistribution(spelled)
      elif isinstance(one.low, int):
        made[key] = self._optuna.distributions.IntDistribution(*one)
      else:
        made[key] = self._optuna.distributions.FloatDistribution(*one)
    return made

  def _decode(self, suggested: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Optuna's values as those of the config."""
    return {
      key: json.loads(suggested[key])
      if isinstance(one, ranges.Choices)
      else suggested[key]
      for key, one in self._options.ranges.items()
    }

  def _plan_run(self, trial: _Trial, seed: int) -> str:
    """Adds a run to the plan; returns its folder."""
    run = _folder(trial.number, seed)
    values = [
      json.dumps(value) if isinstance(value, list) else value
      for value in trial.values.values()
    ]
    self._planned[run] = plan_lib.PlannedRun(run, (trial.number, *values), seed)
    return run

  def _trial_of(self, task: run_process.Task) -> _Trial:
    return self._open[self._planned[task.run].values[0]]

  def _score(self, run: str) -> float:
    """Returns the objective of a finished run; NaN if it has diverged."""
    path = self._workdir / run / 'evaluation' / 'summary.json'
    last = sealed_json.read(path, 'Evaluate the run again.')['last']
    return summaries.whole(last, self._objective.metric)

  def _tell(self, trial: _Trial) -> None:
    """Ends a trial with the mean of its scores."""
    mean = sum(trial.scores) / len(trial.scores)
    del self._open[trial.number]
    if math.isfinite(mean):
      self._study.tell(trial.number, mean)
    else:
      # Optuna forgets failures, and would draw them again and again.
      self._study.tell(trial.number, state=self._states.PRUNED)

  def _set_aside(
    self, trial: _Trial, run: str, error: errors.UserError
  ) -> None:
    """Leaves a trial unfinished."""
    self._planned[run] = self._planned[run]._replace(error=str(error))
    self.write_plan()
    del self._open[trial.number]

  def _refuse(self, trial: _Trial, run: str, error: errors.UserError) -> None:
    """Ends a trial one of whose runs is refused."""
    self._set_aside(trial, run, error)
    self._study.tell(trial.number, state=self._states.FAIL)

  def _prune(
    self, trial: _Trial, task: run_process.Task, round_num: int
  ) -> None:
    """Ends a trial as hopeless."""
    logging.info('%s is pruned after round %d.', task.run, round_num)
    run = self._planned[task.run]
    self._planned[task.run] = run._replace(pruned_round=round_num)
    self.write_plan()
    del self._open[trial.number]
    self._study.tell(trial.number, state=self._states.PRUNED)


def _folder(trial_number: int, seed: int) -> str:
  """Returns the folder of a run."""
  return f'trial_{trial_number:04d}/seed_{seed}'
