"""Plan of a sweep (`sweep.json`): its axes and runs, and questions about them.

A cell is one combination of values of all axes; it has a run for each seed.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tff_algos.core import errors, sealed_json

FILE = 'sweep.json'
# Key of the only axis of a comparison; those of others are of their configs.
FOLDER = 'folder'
VALIDATION = 'validation'
UNSEEN = 'unseen'


class Criterion(NamedTuple):
  """Criterion of model selection.

  Attributes:
    metric: Metric of the last round, without the name of the score.
    title: Description.
    needs: What a dataset must provide for it.
  """

  metric: str
  title: str
  needs: str


CRITERIA = {
  VALIDATION: Criterion(
    'participating/validation/personalized',
    'the personalized models on validation examples',
    'a validation part (config.dataset.splits.validation_ratio)',
  ),
  UNSEEN: Criterion(
    'unseen/test/cluster',
    'the cluster models that unseen clients select',
    'unseen clients (config.dataset.partition.num_unseen_clients, or '
    'options.unseen_fraction)',
  ),
}


class Question(NamedTuple):
  """Question of model selection.

  Attributes:
    key: Key of an axis of the sweep.
    by: Key of `CRITERIA`.
  """

  key: str
  by: str = VALIDATION


class Axis(NamedTuple):
  """Axis of a sweep.

  Attributes:
    key: Dotted key of the config, or a description of what is varied.
    name: Short unique name; empty if the values are self-explanatory.
    values: Distinct values, JSON-ready.
  """

  key: str
  name: str
  values: tuple[Any, ...]

  @property
  def is_numeric(self) -> bool:
    """Returns whether the values are two or more numbers."""
    return len(self.values) > 1 and all(
      isinstance(value, (int, float)) and not isinstance(value, bool)
      for value in self.values
    )


class PlannedRun(NamedTuple):
  """One run.

  Attributes:
    folder: Folder, relative to that of the sweep.
    values: One value for each axis.
    seed: `config.seed`.
    error: Error that prevented the run; empty if there was none.
    pruned_round: Round after which a search ended the run as hopeless, counted
      from the run's own start; None if it did not.
  """

  folder: str
  values: tuple[Any, ...]
  seed: int
  error: str = ''
  pruned_round: int | None = None


class Search(NamedTuple):
  """Objective of a search.

  Attributes:
    metric: Validation metric after the last round, averaged over seeds.
    higher_is_better: Whether a larger value is better.
    num_seeds: Number of runs of a trial.
  """

  metric: str
  higher_is_better: bool
  num_seeds: int


class Plan(NamedTuple):
  """A sweep.

  Attributes:
    name: Title of the report.
    axes: Axes; empty if only seeds differ.
    runs: Runs, adjacent for each cell.
    search: Objective by which the runs were selected; None for a grid.
  """

  name: str
  axes: tuple[Axis, ...]
  runs: tuple[PlannedRun, ...]
  search: Search | None = None

  @property
  def is_comparison(self) -> bool:
    """Returns whether the runs were started separately."""
    return [axis.key for axis in self.axes] == [FOLDER]


def value_text(value: Any) -> str:
  """Returns a value as readable text."""
  return f'{value:.6g}' if isinstance(value, float) else str(value)


def seeds_text(count: int) -> str:
  """Returns a number of seeds as text."""
  return f'{count} seed' + 's' * (count != 1)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns rows of cells as lines with aligned columns."""
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return ['  '.join(map(str.ljust, row, widths)).rstrip() for row in rows]


def label(axes: Sequence[Axis], values: Sequence[Any]) -> str:
  """Returns the label of a cell, such as `'tau=2, lambda=0.1'`."""
  return ', '.join(
    f'{axis.name}={value_text(value)}' if axis.name else value_text(value)
    for axis, value in zip(axes, values, strict=True)
  )


def to_dict(plan: Plan) -> Mapping[str, Any]:
  """Returns a plan as JSON-ready values, see `read`."""
  content: dict[str, Any] = {
    'name': plan.name,
    'axes': [axis._asdict() for axis in plan.axes],
    'runs': [run._asdict() for run in plan.runs],
  }
  if plan.search is not None:
    content['search'] = plan.search._asdict()
  return content


def read(workdir: pathlib.Path) -> Plan:
  """Reads the plan of a sweep.

  Raises:
    DataError: If the folder has none, or it is damaged.
  """
  path = workdir / FILE
  content = sealed_json.read(
    path,
    'Make it with `python -m binaries.sweep --config=CONFIG '
    f'--workdir={workdir}`.',
  )
  try:
    return Plan(
      content['name'],
      tuple(
        Axis(**axis)._replace(values=tuple(map(_hashable, axis['values'])))
        for axis in content['axes']
      ),
      tuple(
        PlannedRun(**run)._replace(values=tuple(map(_hashable, run['values'])))
        for run in content['runs']
      ),
      Search(**content['search']) if 'search' in content else None,
    )
  except (KeyError, TypeError, ValueError) as error:
    raise errors.DataError(
      f'{path} is damaged ({type(error).__name__}: {error}); run '
      'binaries.sweep again to write it anew.'
    ) from None


def _hashable(value: Any) -> Any:
  """Returns a value with tuples for lists; as text if it has mappings."""
  value = _with_tuples(value)
  try:
    hash(value)
  except TypeError:
    return str(value)
  return value


def _with_tuples(value: Any) -> Any:
  if isinstance(value, list):
    return tuple(map(_with_tuples, value))
  return value
