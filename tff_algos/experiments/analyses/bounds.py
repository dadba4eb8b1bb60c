"""Comparison of a run on linear regressions with its convergence bounds."""

import pathlib
from collections.abc import Sequence
from typing import Any

from tff_algos.core import errors
from tff_algos.experiments import experiment, session, tables
from tff_algos.experiments.analyses import (
  cmfl_bounds,
  fed_soft_bounds,
  pfedkm_bounds,
  refusals,
)

ANALYSES = {
  'fed_soft': fed_soft_bounds,
  'pfedkm': pfedkm_bounds,
  'cmfl': cmfl_bounds,
}


def measure(
  config: experiment.ExperimentConfig, folder: str
) -> list[dict[str, Any]]:
  """Writes evaluation/bounds.csv; returns its rows.

  Raises:
    UserError: If the theorems do not apply to the experiment, or its dataset or
      a checkpoint is missing.
  """
  algorithm, options = config.algorithm
  model, model_options = config.model
  if algorithm not in ANALYSES or model != 'linear_regression':
    raise errors.ConfigError(
      f'binaries.bounds compares {", ".join(ANALYSES)} on linear_regression '
      'with the theorems of their papers; config.algorithm.name is '
      f'{algorithm!r} and config.model.name {model!r}. Take a config such as '
      'configs/fed_soft/synthetic.py:10_90, configs/pfedkm/regressions.py or '
      'configs/cmfl/regressions.py'
    )
  refusals.check_not_private(config, 'binaries.bounds')
  analysis = ANALYSES[algorithm]
  analysis.check(config)
  with session.open_session(config, folder) as opened:
    rows = analysis.measure(opened, options, model_options.use_bias)
  tables.write_table(pathlib.Path(folder, 'evaluation', 'bounds.csv'), rows)
  return rows


def text(
  config: experiment.ExperimentConfig, rows: Sequence[dict[str, Any]]
) -> str:
  """Returns the main columns and their meaning as a printable table.

  Of many rows, only powers of two and the last one are shown.
  """
  columns = ANALYSES[config.algorithm.name].COLUMNS
  shown = [
    row
    for number, row in enumerate(rows, start=1)
    if not number & (number - 1) or number == len(rows)
  ]
  width = max(map(len, columns))
  legend = [f'{column:>{width}}  {what}' for column, what in columns.items()]
  return '\n'.join([tables.table_text(shown, [*columns]), '', *legend])
