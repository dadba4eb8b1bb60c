"""Stored results of experiments of papers: records, verdicts, tables.

`experiments.toml` lists the experiments, `results/<id>.json` has the result of
one that was run: its command, configs, provenance, and the metrics of each
seed. The program that writes them is `docs.reproduction.pages`.
"""

import dataclasses
import fnmatch
import itertools
import json
import math
import pathlib
import re
import shlex
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import config as config_lib
from tff_algos.core import errors, sealed_json
from tff_algos.evaluation import summaries

FOLDER = pathlib.Path(__file__).parent
_EXPERIMENTS = FOLDER / 'experiments.toml'
_STORED = FOLDER / 'results'

CONFIRMED = 'confirmed'
CONTRADICTED = 'contradicted'
UNTESTED = 'untested at this size'
_IN_PERCENT = (
  *('accuracy', 'purity', 'membership/error'),
  *('moved_clients', 'upload_memory'),
)
_STALE = '*stale*'
_OURS = "(not the paper's) "
# A block of a page that is generated, with its markers.
_BLOCK = re.compile(
  r'(?P<open><!-- (?P<kind>result|claims)(?: (?P<id>\S+))? -->\n)'
  r'.*?(?P<close><!-- end -->)',
  re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Row:
  """Row of a table.

  Attributes:
    cell: Label of a cell of the sweeps; with `choose_by` possibly a pattern
      with `*` of the labels of several.
    title: Its name in the table.
    paper: The paper's number; empty if it has none.
    metric: Its metric, if another than the experiment's.
  """

  cell: str
  title: str
  paper: str = ''
  metric: str = ''


@dataclasses.dataclass(frozen=True)
class Grid:
  """Table whose two axes are those of a sweep.

  Attributes:
    title: What varies downwards and across.
    cell: Label of its cells, with `{down}` and `{across}` for the values.
    down: Values of the first axis, as in the labels.
    across: Values of the second.
  """

  title: str
  cell: str
  down: tuple[str, ...]
  across: tuple[str, ...]

  @property
  def cells(self) -> list[list[str]]:
    """Returns the labels of the cells, a list a row."""
    return [
      [self.cell.format(down=down, across=across) for across in self.across]
      for down in self.down
    ]


@dataclasses.dataclass(frozen=True)
class Claim:
  """Claim that one cell is better than another.

  Attributes:
    text: The claim.
    better: Label or pattern of the cell that should have the higher score, or
      the lower error, with `{across}` for the values of `across`.
    worse: That of the other.
    across: Values for each of which the claim is made; empty for one claim.
    metric: Metric that is compared, if another than the experiment's.
    of_paper: Whether the paper makes it; others are not counted.
  """

  text: str
  better: str
  worse: str
  across: tuple[str, ...] = ()
  metric: str = ''
  of_paper: bool = True

  @property
  def pairs(self) -> list[tuple[str, str]]:
    """Returns the labels that are compared, (better, worse)."""
    return [
      (self.better.format(across=value), self.worse.format(across=value))
      for value in self.across or ('',)
    ]


@dataclasses.dataclass(frozen=True)
class Experiment:
  """An experiment of a paper.

  Attributes:
    id: `<system>/<name>`.
    reproduces: Table or figure of the paper.
    sweep: Arguments of `binaries.sweep`, as in a shell, without `--workdir`;
      each `--config` begins the arguments of another sweep.
    metric: Metric of its picture, and whose last round is compared; the lower
      the better if it is an error, see `summaries.is_error`, else the higher.
    rows: Rows of its table.
    grids: Tables of two axes, of experiments without rows.
    claims: Claims to be judged.
    choose_by: Metric of the last round by whose mean over seeds the best of the
      cells of a pattern is chosen; empty if all are named.
    needs: Why it was not run; empty once a result is stored.
  """

  id: str
  reproduces: str
  sweep: str
  metric: str
  rows: tuple[Row, ...] = ()
  grids: tuple[Grid, ...] = ()
  claims: tuple[Claim, ...] = ()
  choose_by: str = ''
  needs: str = ''

  @property
  def sweeps(self) -> dict[str, list[str]]:
    """Returns folder -> arguments of `binaries.sweep`, without `--workdir`."""
    found: list[list[str]] = []
    for argument in shlex.split(self.sweep):
      if argument.startswith('--config='):
        found.append([])
      found[-1].append(argument)
    folder = f'runs/reproduction/{self.id}'
    if len(found) == 1:
      return {folder: found[0]}
    return {f'{folder}/{i}': one for i, one in enumerate(found)}

  @property
  def command(self) -> str:
    """Returns the commands of its sweeps, a line each."""
    return '\n'.join(
      f'python -m binaries.sweep {shlex.join(arguments)} --workdir={folder}'
      for folder, arguments in self.sweeps.items()
    )

  @property
  def metrics(self) -> list[str]:
    """Returns the metrics that are stored, each once."""
    named = [self.metric, self.choose_by]
    named += [one.metric for one in (*self.rows, *self.claims)]
    return [*dict.fromkeys(filter(None, named))]

  @property
  def record(self) -> pathlib.Path:
    """Returns the path of its stored result."""
    return _STORED / f'{self.id}.json'

  @property
  def picture(self) -> pathlib.Path:
    """Returns the path of the picture of its stored result."""
    return self.record.with_suffix('.png')


class Judgement(NamedTuple):
  """Verdict on a claim.

  Attributes:
    verdict: `CONFIRMED`, `CONTRADICTED` or `UNTESTED`.
    num_seeds: Seeds of both cells.
    difference: Mean over seeds of better minus worse; NaN without seeds.
    low: Lower end of its 95 % interval; NaN below three seeds.
    high: Upper end.
  """

  verdict: str
  num_seeds: int
  difference: float
  low: float
  high: float


def experiments() -> dict[str, Experiment]:
  """Returns id -> experiment, in the order of `experiments.toml`."""
  listed = tomllib.loads(_EXPERIMENTS.read_text())['experiment']
  return {
    one['id']: config_lib.from_dict(Experiment, one, one['id'])
    for one in listed
  }


def find(experiment_id: str) -> Experiment:
  """Returns an experiment.

  Raises:
    ConfigError: If there is none of this id.
  """
  known = experiments()
  if experiment_id not in known:
    raise errors.ConfigError(
      f'RUN={experiment_id} is no experiment of {_EXPERIMENTS.name}; it has '
      f'{", ".join(known)}'
    )
  return known[experiment_id]


def read(experiment: Experiment) -> dict[str, Any] | None:
  """Returns the stored result of an experiment; None if there is none.

  Raises:
    DataError: If the file is damaged.
  """
  if not experiment.record.is_file():
    return None
  result = sealed_json.read(
    experiment.record, f'Run `make reproduction RUN={experiment.id}`.'
  )
  shared = result.pop('config')
  for cell in result['cells'].values():
    cell['config'] = _joined(shared, cell['config'])
  return result


def write(experiment: Experiment, result: Mapping[str, Any]) -> None:
  """Stores the result of an experiment.

  What the configs of its cells have in common stands once in the file, and of
  each cell the rest.
  """
  cells = result['cells']
  shared = _shared([cell['config'] for cell in cells.values()])
  rests = {
    label: {**cell, 'config': _rest(cell['config'], shared)}
    for label, cell in cells.items()
  }
  content = {**result, 'config': shared, 'cells': rests}
  sealed_json.write(experiment.record, content)


def _shared(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the keys and values that all configs have."""
  shared = {}
  for key in configs[0]:
    if not all(key in one for one in configs):
      continue
    values = [one[key] for one in configs]
    if all(isinstance(value, dict) for value in values):
      shared[key] = _shared(values)
    elif len({json.dumps(value) for value in values}) == 1:
      shared[key] = values[0]
  return shared


def _rest(
  config: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns a config without what is shared."""
  rest = {}
  for key, value in config.items():
    if key not in shared:
      rest[key] = value
    elif isinstance(value, dict) and (inner := _rest(value, shared[key])):
      rest[key] = inner
  return rest


def _joined(
  shared: Mapping[str, Any], rest: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the config of which `_rest` is the rest."""
  joined = {**shared, **rest}
  for key in shared.keys() & rest.keys():
    joined[key] = _joined(shared[key], rest[key])
  return joined


def judge(better: Mapping[int, float], worse: Mapping[int, float]) -> Judgement:
  """Judges the claim that one cell scores higher than another.

  The rule: *confirmed* if the 95 % interval of the mean difference of runs with
  the same seed (Student's t) is above 0, *contradicted* if it is below 0. Else,
  and below three seeds, the claim is *untested at this size*.

  Args:
    better: seed -> score of the cell that is claimed to be better.
    worse: seed -> score of the other.
  """
  seeds = sorted(better.keys() & worse.keys())
  if not seeds:
    return Judgement(UNTESTED, 0, np.nan, np.nan, np.nan)
  mean, low, high = summaries.mean_interval(
    np.array([better[seed] - worse[seed] for seed in seeds])
  )
  verdict = UNTESTED
  if low > 0:
    verdict = CONFIRMED
  elif high < 0:
    verdict = CONTRADICTED
  return Judgement(verdict, len(seeds), mean, low, high)


def choose(
  experiment: Experiment, result: Mapping[str, Any] | None, pattern: str
) -> str:
  """Returns the label of the chosen cell; the pattern if none was run."""
  if not experiment.choose_by or result is None:
    return pattern

  labels = fnmatch.filter(result['cells'], pattern)
  found = {
    label: {
      run['seed']: run['metrics'][experiment.choose_by][-1]
      for run in result['cells'][label]['runs']
    }
    for label in labels
  }
  # Of cells with other seeds the luckier ones would be chosen.
  common = set.intersection(*map(set, found.values())) if found else set()

  def mean(label):
    return np.mean([found[label][seed] for seed in common or found[label]])

  best = min if summaries.is_error(experiment.choose_by) else max
  return best(labels, key=mean, default=pattern)


def scores(
  experiment: Experiment,
  result: Mapping[str, Any] | None,
  cell: str,
  metric: str = '',
) -> dict[int, float]:
  """Returns seed -> score of a cell; of accuracies in %, empty if not run.

  Without a metric it is the experiment's.

  Raises:
    DataError: If the cell was stored before a row or a claim named the metric.
  """
  metric = metric or experiment.metric
  label = choose(experiment, result, cell)
  runs = (result or {'cells': {}})['cells'].get(label, {'runs': []})['runs']
  if any(metric not in run['metrics'] for run in runs):
    raise errors.DataError(
      f'the stored result of {experiment.id} has no {metric!r} of cell '
      f'{label!r}, which a row or a claim of {_EXPERIMENTS.name} names: run '
      f'`make reproduction RUN={experiment.id}`, or name another metric'
    )
  factor = scale(metric)
  return {run['seed']: factor * run['metrics'][metric][-1] for run in runs}


def scale(metric: str) -> int:
  """Returns the factor by which a metric is shown: shares in %."""
  return 100 if metric.endswith(_IN_PERCENT) else 1


def render(page: str, stale: Mapping[str, Collection[str]]) -> str:
  """Returns a page with its generated blocks written anew.

  Args:
    page: Text with blocks between `<!-- result ID -->` or `<!-- claims -->`,
      and `<!-- end -->`.
    stale: id -> cells whose configs have changed since they were run.
  """

  def block(match: re.Match[str]) -> str:
    if match['kind'] == 'claims':
      made = _claims_table(experiments().values(), stale)
    else:
      experiment = find(match['id'])
      made = _result_block(experiment, stale.get(experiment.id, ()))
    return f'{match["open"]}{made}\n{match["close"]}'

  return _BLOCK.sub(block, page)


def ids(page: str) -> list[str]:
  """Returns the ids of the experiments whose results are on a page."""
  return [match['id'] for match in _BLOCK.finditer(page) if match['id']]


def _result_block(experiment: Experiment, stale: Collection[str]) -> str:
  """Returns command, table, verdicts and provenance of an experiment."""
  result = read(experiment)
  parts = [f'```\n{experiment.command}\n```']
  if result is None:
    return (
      f'{parts[0]}\n\nNot run: {experiment.needs or "no result is stored"}.'
    )
  if experiment.rows:
    parts.append(_rows_table(experiment, result, stale))
  parts += [
    _grid_table(experiment, result, grid, stale) for grid in experiment.grids
  ]
  parts += _verdict_tables(experiment, result, stale)
  parts.append(_provenance_text(result))
  parts.append(
    f'![{experiment.metric}, seeds and their means]'
    f'(results/{experiment.id}.png)'
  )
  return '\n\n'.join(parts)


def _verdict_tables(
  experiment: Experiment, result: Mapping[str, Any], stale: Collection[str]
) -> list[str]:
  """Returns a table for claims of the same values across, in their order."""
  tables = []
  judged = _judged(experiment, result, stale)
  for across, listed in itertools.groupby(judged, lambda one: one[0].across):
    columns = across or ('ours, difference, and verdict',)
    lines = [
      f'| claim | {" | ".join(columns)} |',
      f'|{"---|" * (1 + len(columns))}',
    ]
    for claim, verdicts in listed:
      cells = ' | '.join(f'{text}: {verdict}' for text, verdict in verdicts)
      lines.append(f'| {_OURS * (not claim.of_paper)}{claim.text} | {cells} |')
    tables.append('\n'.join(lines))
  return tables


def _rows_table(
  experiment: Experiment, result: Mapping[str, Any], stale: Collection[str]
) -> str:
  lines = ['| | paper | ours | seeds |', '|---|---|---|---|']
  for row in experiment.rows:
    found = scores(experiment, result, row.cell, row.metric)
    if found:
      label = choose(experiment, result, row.cell)
      mark = f' ({label})' if label != row.cell else ''
      mark += f' {_STALE}' if label in stale else ''
      lines.append(
        f'| {row.title}{mark} | {row.paper} | {_spread_text(found)} | '
        f'{len(found)} |'
      )
  return '\n'.join(lines)


def _grid_table(
  experiment: Experiment,
  result: Mapping[str, Any],
  grid: Grid,
  stale: Collection[str],
) -> str:
  lines = [
    f'| {grid.title} | {" | ".join(grid.across)} |',
    f'|{"---|" * (1 + len(grid.across))}',
  ]
  for down, labels in zip(grid.down, grid.cells, strict=True):
    texts = [
      _spread_text(scores(experiment, result, label))
      + f' {_STALE}' * (label in stale)
      for label in labels
    ]
    lines.append(f'| {down} | {" | ".join(texts)} |')
  return '\n'.join(lines)


def _claims_table(
  listed: Collection[Experiment], stale: Mapping[str, Collection[str]]
) -> str:
  """Returns the table of all experiments: verdicts on the papers' claims."""
  verdicts = (CONFIRMED, CONTRADICTED, UNTESTED)
  lines = [
    f'| | {" | ".join(verdicts)} | command | cost |',
    '|---|---|---|---|---|---|',
  ]
  for experiment in listed:
    result = read(experiment)
    judged = _judged(experiment, result, stale.get(experiment.id, ()))
    told = [
      verdict
      for claim, pairs in judged
      for _, verdict in pairs
      if claim.of_paper
    ]
    counts = [_count_text(told, one) for one in verdicts]
    if result is None:
      counts = ['', '', 'not run']
    page = f'[{experiment.reproduces}]({experiment.id.partition("/")[0]}.md)'
    lines.append(
      f'| {page} | {" | ".join(map(str, counts))} | '
      f'`RUN={experiment.id}` | '
      f'{_cost_text(result) if result else experiment.needs} |'
    )
  return '\n'.join(lines)


def _count_text(told: Collection[str], verdict: str) -> str:
  """Returns how often a verdict was told, marked if any of them is stale."""
  found = [one for one in told if one.startswith(f'**{verdict}**')]
  mark = f' {_STALE}' if any(one.endswith(_STALE) for one in found) else ''
  return f'{len(found)}{mark}' if found else ''


def _judged(
  experiment: Experiment,
  result: Mapping[str, Any] | None,
  stale: Collection[str],
) -> list[tuple[Claim, list[tuple[str, str]]]]:
  """Returns each claim with the (difference, verdict) of each of its pairs."""
  return [
    (
      claim,
      [
        _judged_pair(experiment, result, stale, claim, pair)
        for pair in claim.pairs
      ],
    )
    for claim in experiment.claims
  ]


def _judged_pair(
  experiment: Experiment,
  result: Mapping[str, Any] | None,
  stale: Collection[str],
  claim: Claim,
  pair: tuple[str, str],
) -> tuple[str, str]:
  """Returns the difference of two cells as text, and the verdict."""
  better, worse = (
    scores(experiment, result, cell, claim.metric) for cell in pair
  )
  if summaries.is_error(claim.metric or experiment.metric):
    # So that a positive difference always speaks for the claim.
    better, worse = worse, better
  found = judge(better, worse)
  verdict = f'**{found.verdict}**'
  if experiment.choose_by and result:
    sizes = [len(fnmatch.filter(result['cells'], one)) for one in pair]
    if sizes[0] != sizes[1]:
      verdict += f', chosen of {sizes[0]} and of {sizes[1]} cells'
  if {choose(experiment, result, one) for one in pair} & set(stale):
    verdict += f' {_STALE}'
  return _difference_text(found), verdict


def _spread_text(found: Mapping[int, float]) -> str:
  """Returns mean and deviation of at least three seeds, else the scores."""
  values = list(found.values())
  digits = 3 if 0 < np.abs(values).max() < 1 else 1
  if len(values) < summaries.LEAST_SEEDS:
    return ', '.join(f'{value:.{digits}f}' for value in values)
  return f'{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}'


def _difference_text(found: Judgement) -> str:
  if not found.num_seeds:
    return 'not run'
  seeds = f'{found.num_seeds} seed{"s" * (found.num_seeds > 1)}'
  # An end that decides must not be rounded to 0.
  least = min(abs(found.low), abs(found.high))
  digits = 2 if found.high - found.low < 1 or least < 0.05 else 1
  if 0 < least < 0.005:
    digits = math.ceil(-math.log10(least))
  text = f'{found.difference:+.{digits}f}'
  if found.num_seeds >= summaries.LEAST_SEEDS:
    text += f' ({found.low:+.{digits}f} to {found.high:+.{digits}f})'
  return f'{text}, {seeds}'.replace('-', '−')


def _provenance_text(result: Mapping[str, Any]) -> str:
  made_by = {
    f'commit `{str(one["revision"])[:10]}`'
    f'{"" if one["is_clean"] else ", with changes"}, lock '
    f'`{one["lock_hash"]}`, {one["machine"]["cpu"]}, '
    f'{one["machine"]["num_cores"]} cores, '
    f'{one["machine"]["memory_gib"]:g} GiB'
    f'{_after_comma(one["machine"].get("accelerator"))}'
    for cell in result['cells'].values()
    for one in cell['provenance']
  }
  text = '; '.join(sorted(made_by))
  return f'{text[:1].upper()}{text[1:]}; {_cost_text(result)}.'


def _after_comma(text: str | None) -> str:
  return f', {text}' if text else ''


def _cost_text(result: Mapping[str, Any]) -> str:
  """Returns the cost if every run took as long as the fastest of its cell.

  Runs whose machine did something else, too, took longer.
  """
  cells = [cell['runs'] for cell in result['cells'].values()]
  minutes = (
    sum(len(runs) * min(run['seconds'] for run in runs) for runs in cells) / 60
  )
  spent = f'{minutes:.0f} min' if minutes < 60 else f'{minutes / 60:.1f} h'
  num_runs = sum(map(len, cells))
  return f'{num_runs} run{"s" * (num_runs > 1)}, {spent} of rounds'
