"""Runs experiments of papers, stores results, writes the pages' tables.

  python -m docs.reproduction.pages
    [--run=ID [--parallel=N] | --store=ID --workdir=DIR]

`--run` executes the sweeps of an experiment in `runs/reproduction/ID`, N runs
at a time; it resumes what was interrupted, and stores the result. The data sets
are those that its configs name, in `data/`. `--store` stores that of a sweep
that was run elsewhere, possibly of some cells and seeds only: the stored
result's other cells are kept, and its other seeds of cells that differ in
nothing else. Then, and without either, all tables and pictures are written
anew.
"""

import argparse
import copy
import functools
import pathlib
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags
from matplotlib import figure as figure_lib
from matplotlib import ticker
from ml_collections import config_flags

from docs.reproduction import results
from tff_algos.core import config as config_lib
from tff_algos.core import durable, errors, plugins, sealed_json
from tff_algos.experiments import config_file, experiment
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(results.FOLDER.glob('*.md'))
_DIGITS = 6
# Ten lines have colors of their own; further ones repeat them in another style.
_NUM_COLORS = 10
_LINE_STYLES = ('-', '--', ':')
# Options that stored configs have and today's have not: their place, and the
# value that runs have without them.
_REMOVED = (
  (('algorithm', 'k_means', 'projection_size'), 0),
  (('algorithm', 'k_means', 'seed_per_round'), False),
  (('algorithm', 'membership', 'flooring'), 'raise'),
  (('algorithm', 'estimation'), 'batched'),
  (('algorithm', 'schedule', 'downlink_accounting'), 'paper'),
  (('algorithm', 'splitting', 'linkage'), 'complete'),
  (('model', 'decomposition', 'forward_mode'), 'auto'),
  (('training', 'selection', 'keep_best'), True),
)


def expand(arguments: Collection[str]) -> grid.Grid:
  """Returns the runs of a sweep's arguments, as the configs are today."""
  values = flags.FlagValues()
  argv = ['sweep', *arguments]
  config_flags.DEFINE_config_file('config', flag_values=values, sys_argv=argv)
  for define, name, default in (
    (flags.DEFINE_list, 'also', []),
    (flags.DEFINE_list, 'plugins', []),
    (flags.DEFINE_multi_string, 'grid', []),
    (flags.DEFINE_integer, 'num_seeds', 5),
    (flags.DEFINE_bool, 'fixed_dataset', False),
  ):
    define(name, default, '', flag_values=values)
  values(argv)
  plugins.load(values.plugins)
  flag = values['config']
  bases = config_file.bases(
    values.config.to_dict(),
    config_flags.get_config_filename(flag),
    values.also,
    config_flags.get_override_values(flag),
  )
  return grid.expand(
    bases, values.grid, values.num_seeds, fixed_dataset=values.fixed_dataset
  )


def stale_cells(stored: results.Experiment) -> set[str]:
  """Returns the cells whose configs have changed since their runs.

  An option that was added since, at its default, is no change; nor is one of
  `_REMOVED`, nor are seeds.
  """
  result = results.read(stored)
  if result is None:
    return set()
  today = {}
  for arguments in stored.sweeps.values():
    runs = expand(arguments)
    for run, config in zip(runs.plan.runs, runs.configs, strict=True):
      label = sweep_lib.plan.label(runs.plan.axes, run.values)
      if label not in today:
        today[label] = _seedless(stored, config_lib.to_dict(config))
  return {
    label
    for label, cell in result['cells'].items()
    if _seedless(stored, cell['config']) != today.get(label)
  }


def _seedless(
  stored: results.Experiment, config: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns a run's config without its seeds, and with options added since.

  Without these if it is invalid.
  """
  values = copy.deepcopy(dict(config))
  for (*groups, option), kept in _REMOVED:
    options = values
    for group in groups:
      options = options.get(group, {})
    # PPFL's `schedule` is a name.
    if isinstance(options, dict) and options.get(option) == kept:
      del options[option]
  try:
    values = experiment.effective(
      config_lib.to_dict(experiment.parse_plain(values))
    )
  except errors.ConfigError:
    pass
  del values['seed']
  if '--fixed_dataset' not in stored.sweep:
    del values['dataset']['seed']
  return values


def describe(
  stored: results.Experiment, workdir: pathlib.Path
) -> dict[str, Any]:
  """Returns the result of a sweep, JSON-ready: its finished runs.

  Args:
    stored: The experiment.
    workdir: Folder of its sweep.

  Raises:
    DataError: If no run is finished, one has no provenance or has diverged, or
      the runs of a cell have other configs or last rounds.
  """
  cells = {}
  for cell in sweep_lib.read(workdir).cells:
    made_by = []
    for run in cell.runs:
      for one in _provenance(run.workdir):
        made_by += [one] * (one not in made_by)
    config = experiment.effective(cell.runs[0].config)
    for run in cell.runs:
      other = experiment.effective(run.config)
      if _seedless(stored, other) != _seedless(stored, config):
        raise errors.DataError(
          f'{run.workdir} has another config than {cell.runs[0].workdir}, of '
          'the same cell. Remove the one of an older sweep, and run it again'
        )
    rounds = _common_rounds([_series(run, stored.metric) for run in cell.runs])
    cells[cell.label] = {
      'config_hash': config_lib.config_hash(config),
      'config': config,
      'provenance': made_by,
      'rounds': rounds.astype(int).tolist(),
      'runs': [
        {
          'seed': seed,
          'seconds': round(float(_series(run, 'seconds').values.sum()), 1),
          'metrics': {
            name: _values(run, name, rounds) for name in stored.metrics
          },
        }
        for seed, run in zip(cell.seeds, cell.runs, strict=True)
      ],
    }
  return {'command': stored.command, 'cells': cells}


def _common_rounds(series: Sequence[run_lib.Series]) -> np.ndarray:
  """Returns the evaluated rounds that all runs of a cell have.

  A run that was extended has its old end besides.

  Raises:
    DataError: If their last rounds differ.
  """
  ends = sorted({float(one.rounds[-1]) for one in series})
  if len(ends) > 1:
    raise errors.DataError(
      f'runs of a cell end in rounds {", ".join(map("{:.0f}".format, ends))}'
      '. Run the sweep again, to its end'
    )
  return functools.reduce(np.intersect1d, [one.rounds for one in series])


def _values(run: run_lib.Run, name: str, rounds: np.ndarray) -> list[float]:
  """Returns the rounded values of a metric in some rounds.

  Raises:
    DataError: If the run has none, or lacks one of the rounds.
  """
  series = _series(run, name)
  if missing := sorted({*rounds} - {*series.rounds}):
    raise errors.DataError(
      f'{run.workdir} has no {name!r} in round {missing[0]:.0f}, in which the '
      'experiment is evaluated. Run the sweep again, to its end'
    )
  values = series.values[np.isin(series.rounds, rounds)]
  return [float(f'{one:.{_DIGITS}g}') for one in values]


def _series(run: run_lib.Run, name: str) -> run_lib.Series:
  """Returns a metric over rounds.

  Raises:
    DataError: If the run has none of this name, or has diverged.
  """
  found = run.series(name)
  if found is None:
    raise errors.DataError(
      f'{run.workdir} has no round in which {name!r} is finite for all '
      'clients; an experiment of experiments.toml names a metric of metrics.csv'
    )
  if found.diverged is not None:
    raise errors.DataError(
      f'{run.workdir} has diverged: in round {found.diverged} {name!r} is not '
      'finite, at least for a client. A verdict needs its end: sweep without '
      'its cell'
    )
  return found


def _provenance(run: pathlib.Path) -> list[Any]:
  content = sealed_json.read(run / 'config.json', 'Run it again.')
  found = content.get('provenance')
  if not found:
    raise errors.DataError(
      f'{run} names no commit and no machine, so its result cannot be stored; '
      'run it again'
    )
  return found


def store(stored: results.Experiment, workdir: pathlib.Path) -> None:
  """Writes the result of a sweep; cells and seeds that it lacks are kept."""
  result = describe(stored, workdir)
  earlier = results.read(stored) or {'cells': {}}
  for label, cell in earlier['cells'].items():
    found = result['cells'].get(label)
    merged = cell if found is None else _merged(stored, cell, found)
    result['cells'][label] = merged
  results.write(stored, result)


def _merged(
  stored: results.Experiment, earlier: dict[str, Any], cell: dict[str, Any]
) -> dict[str, Any]:
  """Returns a cell with further seeds of an earlier one that it continues.

  Their commits may differ; the page names all of them.
  """
  if _in_common(stored, earlier) != _in_common(stored, cell):
    return cell
  both = sorted((earlier, cell), key=lambda one: one['runs'][0]['seed'])
  runs = {run['seed']: run for one in (earlier, cell) for run in one['runs']}
  made_by = []
  for one in both:
    if any(run in runs.values() for run in one['runs']):
      made_by += [made for made in one['provenance'] if made not in made_by]
  ordered = [runs[seed] for seed in sorted(runs)]
  return {**both[0], 'provenance': made_by, 'runs': ordered}


def _in_common(
  stored: results.Experiment, cell: Mapping[str, Any]
) -> tuple[Any, ...]:
  """Returns what the runs of a cell have in common."""
  config = _seedless(stored, cell['config'])
  return config, cell['rounds'], set(cell['runs'][0]['metrics'])


def _draw(
  stored: results.Experiment, result: Mapping[str, Any]
) -> figure_lib.Figure:
  """Draws the metric over rounds, or where that gives no lines, at the end."""
  if stored.grids:
    return _draw_grids(stored, result)
  curves = {}
  for row in stored.rows:
    cell = result['cells'].get(results.choose(stored, result, row.cell))
    if cell is not None and row.metric in ('', stored.metric):
      values = [run['metrics'][stored.metric] for run in cell['runs']]
      scaled = results.scale(stored.metric) * np.array(values)
      curves[row.title] = cell['rounds'], scaled
  # Round 0, that of the untrained models, alone makes no line.
  is_over_rounds = any(len(rounds) > 2 for rounds, _ in curves.values())
  if is_over_rounds and len(curves) <= _NUM_COLORS * len(_LINE_STYLES):
    return _draw_rounds(stored, curves)
  return _draw_ends(stored, curves)


def _draw_rounds(
  stored: results.Experiment, curves: Mapping[str, tuple[Any, np.ndarray]]
) -> figure_lib.Figure:
  """Draws the mean over seeds, a line a cell, and their range."""
  height = max(4.5, 0.25 * len(curves))  # Of the legend.
  figure = figure_lib.Figure(figsize=(10, height), layout='constrained')
  axes = figure.subplots()
  for i, (title, (rounds, values)) in enumerate(curves.items()):
    (line,) = axes.plot(
      rounds,
      values.mean(0),
      linestyle=_LINE_STYLES[i // _NUM_COLORS],
      label=f'{title} ({len(values)})',
    )
    axes.fill_between(
      rounds,
      values.min(0),
      values.max(0),
      color=line.get_color(),
      alpha=0.15,
      linewidth=0,
    )
  # Untrained models, often far below, would flatten all lines.
  seen = np.concatenate(
    [values[:, 1:].ravel() for _, values in curves.values()]
  )
  margin = 0.05 * np.ptp(seen)
  axes.set_ylim(seen.min() - margin, seen.max() + margin)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  axes.set_xlabel('round')
  axes.set_ylabel(_axis_label(stored), wrap=True)
  # Beside the lines, which end close to each other; its order is theirs.
  figure.legend(
    loc='outside right upper', title='method (seeds; area: their range)'
  )
  return figure


def _draw_ends(
  stored: results.Experiment, curves: Mapping[str, tuple[Any, np.ndarray]]
) -> figure_lib.Figure:
  """Draws the last round, a line of dots a cell: the seeds, and their mean."""
  height = 1.2 + 0.25 * len(curves)
  figure = figure_lib.Figure(figsize=(10, height), layout='constrained')
  axes = figure.subplots()
  for place, (_, values) in enumerate(curves.values()):
    ends = values[:, -1]
    axes.plot(ends, [place] * len(ends), 'o', color='C0', alpha=0.4)
    axes.plot(ends.mean(), place, '|', color='C0', markersize=14)
  axes.set_yticks(
    range(len(curves)),
    [f'{title} ({len(values)})' for title, (_, values) in curves.items()],
  )
  axes.set_ylim(len(curves) - 0.5, -0.5)
  axes.set_xlabel(f'{_axis_label(stored)}, last round: seeds and their mean')
  return figure


def _draw_grids(
  stored: results.Experiment, result: Mapping[str, Any]
) -> figure_lib.Figure:
  """Draws the mean over seeds in the last round, a map a grid."""
  # Of the labels of a single grid that is high and narrow.
  width = max(8, 4 * len(stored.grids) + 1)
  figure = figure_lib.Figure(figsize=(width, 4.5), layout='constrained')
  panels = figure.subplots(1, len(stored.grids), squeeze=False)[0]
  means = [
    np.array(
      [
        [_mean(results.scores(stored, result, cell)) for cell in row]
        for row in one.cells
      ]
    )
    for one in stored.grids
  ]
  every = np.concatenate([values.ravel() for values in means])
  low, high = np.nanmin(every), np.nanmax(every)
  for axes, one, values in zip(panels, stored.grids, means, strict=True):
    image = axes.imshow(values, vmin=low, vmax=high, aspect='auto')
    for down, across in np.argwhere(np.isfinite(values)):
      value = values[down, across]
      color = 'black' if value > (low + high) / 2 else 'white'
      axes.text(
        across, down, f'{value:.0f}', color=color, ha='center', va='center'
      )
    axes.set_xticks(range(len(one.across)), one.across)
    axes.set_yticks(range(len(one.down)), one.down)
    axes.set_title(one.title, fontsize='small', wrap=True)
    axes.grid(visible=False)
  figure.colorbar(image, ax=panels, label=f'{_axis_label(stored)}, last round')
  return figure


def _mean(scores: Mapping[int, float]) -> float:
  """Returns the mean over seeds; NaN of a cell that was not run."""
  return float(np.mean([*scores.values()])) if scores else np.nan


def _axis_label(stored: results.Experiment) -> str:
  return stored.metric + ', %' * (results.scale(stored.metric) > 1)


def write_pages() -> None:
  """Writes the pictures, and the generated blocks of all pages."""
  for one in results.experiments().values():
    result = results.read(one)
    if result is not None:
      with (
        style.applied(),
        durable.replacing(one.picture, 'wb') as file,
      ):
        _draw(one, result).savefig(file, format='png', dpi=80)
  stale = {
    name: stale_cells(one) for name, one in results.experiments().items()
  }
  for page in PAGES:
    before = page.read_text()
    after = results.render(before, stale)
    if after != before:
      page.write_text(after)
      print(f'{page.relative_to(_ROOT)} has new figures.')


def _run(command: Sequence[str]) -> int:
  """Runs a program, which ends with this one; returns its exit status."""
  with subprocess.Popen(command, cwd=_ROOT) as process:
    try:
      return process.wait()
    except BaseException:
      process.terminate()
      raise


def _main() -> int:
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  parser = argparse.ArgumentParser()
  parser.add_argument('--run', help='Experiment to run and to store.')
  parser.add_argument('--parallel', default='0', help='Of binaries.sweep.')
  parser.add_argument('--store', help='Experiment to store from --workdir.')
  parser.add_argument('--workdir', type=pathlib.Path, help='Of --store.')
  options = parser.parse_args()
  if options.store and not options.workdir:
    parser.error('--store needs --workdir, the folder of the sweep')
  try:
    if options.run:
      chosen = results.find(options.run)
      for folder, arguments in chosen.sweeps.items():
        command = [
          *(sys.executable, '-m', 'binaries.sweep', *arguments),
          *(f'--workdir={folder}', f'--parallel={options.parallel}'),
        ]
        if status := _run(command):
          return status
        store(chosen, _ROOT / folder)
    elif options.store:
      store(results.find(options.store), options.workdir)
    write_pages()
  except errors.UserError as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  return 0


if __name__ == '__main__':
  sys.exit(_main())
