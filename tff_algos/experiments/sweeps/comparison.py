"""Comparison of the runs of a sweep, or of separate runs."""

import glob
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors, folder_lock, sealed_json
from tff_algos.data import integrity
from tff_algos.evaluation import round_time
from tff_algos.experiments import experiment, tables
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import choice as choice_lib
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import (
  sweep_page,
  sweep_table,
  trials,
  worst_attack,
)
from tff_algos.reports.sweep import target as target_lib

# Maximum number of keys or runs to name.
_MAX_NAMES = 10
_SEED = re.compile(r'seed_(\d+)')
# Many times what writing the tables takes.
_PATIENCE_SECONDS = 60.0


class Options(NamedTuple):
  """Options of a comparison.

  Attributes:
    prefixes: Prefixes of the metrics to print; empty for those of the report.
    question: Axis and criterion of model selection; None for no selection.
    target: Target score, to measure rounds and communication until it is
      reached; None for none.
    clock: Virtual clock of the pictures of time.
  """

  prefixes: Sequence[str] = ()
  question: plan_lib.Question | None = None
  target: target_lib.Target | None = None
  clock: round_time.Clock = round_time.Clock()


def compare(
  workdir: str | os.PathLike[str],
  options: Options = Options(),
  plan: plan_lib.Plan | None = None,
) -> str:
  """Writes `sweep.csv`, `sweep_summary.csv` and the page of a sweep.

  Args:
    workdir: Folder with `sweep.json`, unless `plan` is given.
    options: Options of the comparison.
    plan: Result of `plan_of_folders`, written to `sweep.json` once its runs are
      read; None for the plan of the folder.

  Returns:
    Means and standard deviations, or the trials of a search; cells that differ
    in length, or whose seeds differ in length or config, runs on raw data that
    changed, runs that are not evaluated, the selected values, and the score of
    each cell under its worst attack; as text.

  Raises:
    ConfigError: If the options do not suit a search, or the folder is not one
      of comparisons.
    DataError: If no run is finished, a file is damaged, the runs do not differ
      by the axis to select on, or none has the metric of the target or of a
      prefix; for lack of a metric, after all files are written.
    WorkdirBusyError: If another process writes the files for a minute.
  """
  if plan is not None:
    grid.check_kind(workdir, grid.COMPARISON)
    # The folders of its runs are relative to this one.
    durable.make_folder(pathlib.Path(workdir))
  sweep = sweep_lib.read(workdir, options.target, options.clock, plan)
  if sweep.plan.search is not None:
    check_search(options)
  chosen: list[str] = []
  if options.question is not None:
    chosen = choice_lib.sentences(sweep, options.question)
  busy = f'another comparison is writing to {sweep.workdir}'
  with folder_lock.exclusive(sweep.workdir, busy, _PATIENCE_SECONDS):
    if plan is not None:
      grid.write_plan(plan, workdir)
    tables.write_table(sweep.workdir / 'sweep.csv', sweep_table.run_rows(sweep))
    tables.write_table(
      sweep.workdir / 'sweep_summary.csv', sweep_table.cell_rows(sweep)
    )
    index = sweep_page.write_report(sweep, chosen)
  logging.info('Report: %s', index)
  if options.target is not None:
    target_lib.check(
      [run for cell in sweep.cells for run in cell.runs], options.target
    )
  if sweep.plan.search is None:
    table = sweep_table.console(sweep, options.prefixes)
  else:
    table = trials.text(sweep)
  return '\n'.join(
    [
      table,
      *_unequal_lengths(sweep),
      *_unequal_goals(sweep),
      *_unequal_configs(sweep),
      *_unequal_raw_data(sweep),
      *_equal_runs(sweep),
      *_earlier_rounds(sweep),
      *_without_results(sweep),
      *chosen,
      *worst_attack.sentences(sweep),
    ]
  )


def _unequal_lengths(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence for each cell whose runs end at different rounds."""
  for cell in sweep.cells:
    rounds = sorted({int(run.summary['last']['round']) for run in cell.runs})
    if len(rounds) > 1:
      yield (
        f'{cell.label or "the runs"}: the means are over runs whose last '
        f'rounds are {", ".join(map(str, rounds))}, of early stopping or of a '
        'sweep that was extended and is not finished'
      )


def _unequal_goals(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence if some cells are to end at other rounds than others."""
  key = 'training.num_rounds'
  if {axis.key for axis in sweep.plan.axes} & {key, grid.CONFIG_FILE}:
    return
  labels: dict[int, list[str]] = {}
  for cell in sweep.cells:
    goals = {
      run.config.get('training', {}).get('num_rounds') for run in cell.runs
    }
    # Of a cell with several, `_unequal_configs` tells.
    if len(goals) == 1 and None not in goals:
      labels.setdefault(goals.pop(), []).append(cell.label)
  if len(labels) > 1:
    told = '; '.join(
      f'{rounds} in {", ".join(labels[rounds][:_MAX_NAMES])}'
      for rounds in sorted(labels)
    )
    yield (
      f'config.{key} differs: {told}. Run the sweep to its end, or compare '
      'runs of one length'
    )


def _unequal_configs(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence for each cell whose configs differ not only by seed."""
  for cell in sweep.cells:
    configs = [
      config_lib.flatten(experiment.effective(run.config)) for run in cell.runs
    ]
    differing = {
      key
      for one in configs
      for key in one
      if any(other.get(key) != one[key] for other in configs)
    }
    keys = sorted(differing - {'seed', 'dataset.seed'})
    if keys:
      yield (
        f'{cell.label or "the runs"}: the means are over runs of different '
        f'configs, which differ in {", ".join(keys[:_MAX_NAMES])}. Run the '
        'sweep to its end, or compare runs of one config'
      )


def _unequal_raw_data(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence for each dataset whose raw data changed between runs."""
  datasets: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
  for cell in sweep.cells:
    for run in cell.runs:
      sources = _raw_checksums(run)
      if sources is not None:
        # Another seed divides the same raw data in another way.
        key = config_lib.config_hash({**run.config['dataset'], 'seed': 0})
        name = os.path.relpath(run.workdir, sweep.workdir)
        datasets.setdefault(key, []).append((name, sources))
  for runs in datasets.values():
    first, before = runs[0]
    others = [name for name, sources in runs if sources != before]
    if others:
      yield (
        f'{first} was trained on other raw data than '
        f'{", ".join(others[:_MAX_NAMES])}: files changed, while '
        'config.dataset stayed. Their scores do not compare; run all of them '
        'on the same files, in another --workdir'
      )


def _raw_checksums(run: run_lib.Run) -> Mapping[str, str] | None:
  """Returns file -> checksum of the raw data of a run's dataset version.

  None if they are generated, or the version is not here any more.
  """
  try:
    folder = integrity.find(
      run.workdir / 'dataset', None, run.summary['dataset_version']
    )
    sources = integrity.read_manifest(folder)['sources']
    is_generated = run.config['dataset']['source']['name'] in sources
  except (KeyError, errors.DataError):
    return None
  # The checksum of generated data is one of their seed.
  return None if is_generated else sources


def _equal_runs(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence for each cell that has a run twice."""
  for cell in sweep.cells:
    hashes = [
      config_lib.config_hash(experiment.effective(run.config))
      for run in cell.runs
    ]
    twice = [
      run.workdir.name
      for run, each in zip(cell.runs, hashes, strict=True)
      if hashes.count(each) > 1
    ]
    if twice:
      yield (
        f'{cell.label or "the runs"}: {", ".join(twice[:_MAX_NAMES])} have one '
        'config and one seed, so they are one run made twice, and their '
        'deviation is not one of seeds. Give each run a --config.seed of its '
        'own'
      )


def _earlier_rounds(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence for each run with the evaluation of an earlier round."""
  for cell in sweep.cells:
    for run in cell.runs:
      if run.evaluated_round != run.last_round:
        yield (
          f'{os.path.relpath(run.workdir, sweep.workdir)}: its metrics are '
          f'those of round {run.evaluated_round}, which was evaluated last, '
          f'and it has {run.last_round} rounds. binaries.evaluate without '
          '--round evaluates the last checkpoint; a run that was killed goes '
          'on if the sweep is run again'
        )


def _without_results(sweep: sweep_lib.Sweep) -> Iterator[str]:
  """Yields a sentence if runs are left out, as they are not evaluated."""
  found = {run.workdir for cell in sweep.cells for run in cell.runs}
  missing = [
    run.folder
    for run in sweep.plan.runs
    if sweep.workdir / run.folder not in found
    and not run.error
    and run.pruned_round is None
  ]
  if missing:
    yield (
      f'{len(missing)} of {len(sweep.plan.runs)} runs are left out, as they '
      f'are not evaluated: {", ".join(missing[:_MAX_NAMES])}'
    )


def check(runs: grid.Grid, question: plan_lib.Question | None) -> None:
  """Checks that a sweep can answer a question, before it runs.

  Args:
    runs: The sweep.
    question: Axis and criterion of the selection; None for no selection.

  Raises:
    UserError: If there is no such axis, or a dataset lacks what the criterion
      needs.
  """
  if question is None:
    return
  choice_lib.check(runs.plan.axes, question)
  for run, config in zip(runs.plan.runs, runs.configs, strict=True):
    dataset = config.dataset
    is_answered = {
      plan_lib.VALIDATION: dataset.splits.validation_ratio > 0,
      plan_lib.UNSEEN: dataset.partition.has_unseen,
    }
    if not is_answered[question.by]:
      raise errors.ConfigError(
        f'--choose_by={question.by} needs datasets with '
        f'{plan_lib.CRITERIA[question.by].needs}; that of {run.folder} has '
        'none'
      )


def check_search(options: Options) -> None:
  """Checks that options suit a search.

  Raises:
    ConfigError: If they are of the tables, pictures or axes of a grid.
  """
  if options.prefixes or options.clock != Options().clock:
    raise errors.ConfigError(
      '--metrics and --clock are of the tables and pictures of a grid, and '
      'a search shows its trials. Leave them out'
    )
  if options.question is not None:
    raise errors.ConfigError(
      '--choose selects a value of an axis, and a search has no axes: it '
      'says itself which trial is the best. Leave --choose out'
    )


def plan_of_folders(
  patterns: list[str], workdir: str | os.PathLike[str]
) -> plan_lib.Plan:
  """Returns the plan of a comparison of separate runs.

  Args:
    patterns: Glob patterns of their folders.
    workdir: Folder of the comparison, which is none of the runs.

  Raises:
    DataError: If a pattern matches no other folder.
  """
  own = pathlib.Path(workdir).resolve()
  folders: dict[pathlib.Path, pathlib.Path] = {}
  for pattern in patterns:
    found = [
      pathlib.Path(path)
      for path in sorted(glob.glob(pattern))
      if os.path.isdir(path) and pathlib.Path(path).resolve() != own
    ]
    if not found:
      raise errors.DataError(
        f'--runs={pattern} matches no folder besides --workdir={workdir}'
      )
    for folder in found:  # Of patterns that overlap, each run counts once.
      folders.setdefault(folder.resolve(), folder)
  cells = [_cell(folder) for folder in folders.values()]
  # The common prefix of all paths is dropped.
  parents = [cell.absolute().parent for cell in cells]
  start = os.path.commonpath(parents)
  labels = [os.path.relpath(cell, start) for cell in cells]
  runs = tuple(
    plan_lib.PlannedRun(
      os.path.relpath(folder, workdir), (label,), _config_seed(folder)
    )
    for folder, label in zip(folders.values(), labels, strict=True)
  )
  axis = plan_lib.Axis(plan_lib.FOLDER, '', tuple(dict.fromkeys(labels)))
  return plan_lib.Plan('Runs compared', (axis,), runs)


def _cell(folder: pathlib.Path) -> pathlib.Path:
  """Returns the folder that names the cell of a run."""
  return folder.parent if _SEED.fullmatch(folder.name) else folder


def _config_seed(folder: pathlib.Path) -> int:
  """Returns the `config.seed` of a run; 0 of a folder without a config."""
  path = folder / 'config.json'
  if not path.exists():
    return 0
  return int(sealed_json.read(path, 'Train it again.')['config']['seed'])
