"""Grid of a sweep: the product of its axes and the seeds."""

import contextlib
import copy
import itertools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tff_algos.core import errors, sealed_json
from tff_algos.experiments import config_values, experiment
from tff_algos.reports.sweep import plan as plan_lib

# Kinds of plans.
GRID, SEARCH, COMPARISON = 'grid', 'search', 'comparison'
# Key of the axis of the config files; those of others are of their configs.
CONFIG_FILE = 'config file'
# Of a file system.
_MAX_NAME_BYTES = 255


class Grid(NamedTuple):
  """The expanded grid of a sweep.

  Attributes:
    plan: Axes and runs.
    configs: Experiment of each run.
  """

  plan: plan_lib.Plan
  configs: tuple[experiment.ExperimentConfig, ...]


def expand(
  bases: Mapping[str, Mapping[str, Any]],
  options: Sequence[str],
  num_seeds: int,
  *,
  fixed_dataset: bool = False,
) -> Grid:
  """Returns all runs, validated but not started.

  Args:
    bases: Label -> nested values of a config file; several of them are the
      first axis.
    options: `'KEY=VALUE,VALUE,...'`, one for each further axis.
    num_seeds: Runs of a cell, with the seeds 0, 1, ...
    fixed_dataset: Whether `dataset.seed` is kept, or set to the run's seed.

  Raises:
    ConfigError: If a key or value does not fit one of the configs, a key is
      given twice, or two runs would have one folder.
  """
  first = next(iter(bases.values()))
  keys = [option.partition('=')[0] for option in options]
  _check_keys(options, keys, fixed_dataset)
  choices = [config_values.parse(option, first) for option in options]
  axes = [
    plan_lib.Axis(key, name, tuple(values))
    for key, name, values in zip(keys, names(keys), choices, strict=True)
  ]
  if len(bases) > 1:
    axes.insert(0, plan_lib.Axis(CONFIG_FILE, '', tuple(bases)))
  runs, configs = [], []
  for (label, base), *values in itertools.product(bases.items(), *choices):
    cell = ((label,) if len(bases) > 1 else ()) + tuple(values)
    for seed in range(num_seeds):
      runs.append(plan_lib.PlannedRun(_folder(axes, cell, seed), cell, seed))
      configs.append(
        experiment_of(
          base,
          dict(zip(keys, values, strict=True)),
          seed,
          fixed_dataset=fixed_dataset,
          label=plan_lib.label(axes, cell) or label,
        )
      )
  _check_different([run.folder for run in runs])
  name = str(first.get('name', ''))
  if len(bases) > 1:
    name = f'Sweep over {", ".join(bases)}'
  plan = plan_lib.Plan(name, tuple(axes), tuple(runs))
  return Grid(plan, tuple(configs))


def experiment_of(
  base: Mapping[str, Any],
  values: Mapping[str, Any],
  seed: int,
  *,
  fixed_dataset: bool,
  label: str,
) -> experiment.ExperimentConfig:
  """Returns the experiment of a run.

  Args:
    base: Nested values of the config file.
    values: Dotted key -> value in place of the file's.
    seed: Seed of the run.
    fixed_dataset: As of `expand`.
    label: Names the run in an error.

  Raises:
    ConfigError: If a key or value does not fit the config.
  """
  changed = copy.deepcopy(dict(base))
  for key, value in values.items():
    config_values.assign(changed, key, value, '--grid')
  config_values.assign(changed, 'seed', seed, '--num_seeds')
  if not fixed_dataset:
    config_values.assign(changed, 'dataset.seed', seed, '--num_seeds')
  try:
    return experiment.parse_plain(changed)
  except errors.ConfigError as error:
    raise errors.ConfigError(f'{label}: {error}') from None


def write_plan(
  plan: plan_lib.Plan,
  workdir: str | os.PathLike[str],
  refused: Mapping[str, str] | None = None,
) -> plan_lib.Plan:
  """Writes `sweep.json` into the folder of a sweep; creates the folder.

  Args:
    plan: The plan.
    workdir: The folder.
    refused: Folder of a run -> why it was refused.

  Returns:
    The plan as it is written.

  Raises:
    ConfigError: If the folder is that of a run or of another kind of sweep.
  """
  check_kind(workdir, _kind(plan))
  refused = refused or {}
  runs = [
    run._replace(error=refused.get(run.folder, run.error)) for run in plan.runs
  ]
  plan = plan._replace(runs=tuple(runs))
  path = pathlib.Path(workdir, plan_lib.FILE)
  sealed_json.write(path, plan_lib.to_dict(plan))
  return plan


@contextlib.contextmanager
def recording(
  plan: plan_lib.Plan, workdir: pathlib.Path
) -> Iterator[dict[str, str]]:
  """Writes a plan before its runs, and again when they end, also by an error.

  Args:
    plan: The plan.
    workdir: Folder of the sweep.

  Yields:
    Folder of a run -> why it was refused, for the caller to fill.

  Raises:
    ConfigError: As `write_plan`.
  """
  write_plan(plan, workdir)
  refused: dict[str, str] = {}
  try:
    yield refused
  except BaseException:
    with contextlib.suppress(errors.UserError, OSError):
      write_plan(plan, workdir, refused)
    raise
  write_plan(plan, workdir, refused)


def check_kind(workdir: str | os.PathLike[str], kind: str) -> None:
  """Checks that no run and no plan of another kind lies in a folder.

  Args:
    workdir: The folder; it may be missing.
    kind: `GRID`, `SEARCH` or `COMPARISON`.

  Raises:
    ConfigError: If one does.
  """
  if os.path.lexists(os.path.join(workdir, 'config.json')):
    raise errors.ConfigError(
      f'{workdir} is the folder of a run, whose report that of a {kind} would '
      f'replace. Give another --workdir for the {kind}'
    )
  try:
    found = _kind(plan_lib.read(pathlib.Path(workdir)))
  except errors.DataError:  # None, or a damaged one, which is written anew.
    return
  if found != kind:
    raise errors.ConfigError(
      f'{pathlib.Path(workdir, plan_lib.FILE)} is the plan of a {found}, which '
      f'that of a {kind} would replace. Give another --workdir for the {kind}'
    )


def _kind(plan: plan_lib.Plan) -> str:
  if plan.search is not None:
    return SEARCH
  return COMPARISON if plan.is_comparison else GRID


def _check_keys(
  options: Sequence[str], keys: Sequence[str], fixed_dataset: bool
) -> None:
  for option, key in zip(options, keys, strict=True):
    if not re.fullmatch(r'[\w.]+=.+', option):
      raise errors.ConfigError(
        f'--grid={option} must read KEY=VALUE,VALUE,..., such as '
        'algorithm.num_clusters=2,4'
      )
    if keys.count(key) > 1:
      raise errors.ConfigError(
        f'--grid={key} is given twice; write all values behind one'
      )
    check_no_seed(f'--grid={key}', key, fixed_dataset=fixed_dataset)


def check_no_seed(argument: str, key: str, *, fixed_dataset: bool) -> None:
  """Checks that an argument does not set what --num_seeds sets.

  Args:
    argument: The argument, for the error text.
    key: Dotted key that it sets.
    fixed_dataset: As of `expand`.

  Raises:
    ConfigError: If it does.
  """
  if key == 'seed' or (key == 'dataset.seed' and not fixed_dataset):
    raise errors.ConfigError(
      f'{argument}: --num_seeds sets the seeds; with --fixed_dataset it '
      'leaves dataset.seed alone'
    )


def names(keys: Sequence[str]) -> list[str]:
  """Returns the shortest unique suffix of each dotted key."""

  def ending(key: str, count: int) -> str:
    return '.'.join(key.split('.')[-count:])

  shortest = []
  for key in keys:
    count = 1
    while sum(ending(one, count) == ending(key, count) for one in keys) > 1:
      count += 1
    shortest.append(ending(key, count))
  return shortest


def _folder(
  axes: Sequence[plan_lib.Axis], cell: Sequence[Any], seed: int
) -> str:
  label = plan_lib.label(axes, cell).replace(', ', ',')
  place = re.sub(r'[^\w.,=+-]+', '-', label).strip('-')
  return f'{place}/seed_{seed}' if place else f'seed_{seed}'


def _check_different(folders: Sequence[str]) -> None:
  for folder in folders:
    longest = max(folder.split('/'), key=len)
    if len(longest.encode()) > _MAX_NAME_BYTES:
      raise errors.ConfigError(
        f'a run would lie in the folder {longest}, whose name has '
        f'{len(longest.encode())} bytes; a file system allows '
        f'{_MAX_NAME_BYTES}. Sweep fewer keys at once, or shorter values'
      )
    if folders.count(folder) > 1:
      raise errors.ConfigError(
        f'two cells would lie in {folder}: their values are spelled too much '
        'alike; sweep them apart'
      )
