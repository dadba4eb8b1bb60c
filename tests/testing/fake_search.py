"""Writes the files of a search that never was; see `fake_sweep`."""

import pathlib
from collections.abc import Sequence
from typing import Any

from tests.testing import fake_sweep
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

METRIC = 'participating/test/personalized/accuracy'


def read(
  workdir: pathlib.Path,
  values: dict[str, Sequence[Any]],
  levels: Sequence[float | None],
  *,
  higher_is_better: bool = True,
) -> sweep_lib.Sweep:
  """Returns a search.

  Args:
    workdir: Its folder.
    values: Name of a key -> its value in each trial.
    levels: Objective of each trial; None for one that was pruned.
    higher_is_better: Whether the largest objective is the best.
  """
  axes = [plan_lib.Axis('trial', 'trial', tuple(range(len(levels))))]
  axes += [
    plan_lib.Axis(f'algorithm.{name}', name, tuple(dict.fromkeys(column)))
    for name, column in values.items()
  ]
  runs = []
  for number, level in enumerate(levels):
    run = plan_lib.PlannedRun(
      f'trial_{number}/seed_0',
      (number, *(column[number] for column in values.values())),
      0,
      pruned_round=1 if level is None else None,
    )
    if level is not None:
      fake_sweep.write_run(workdir / run.folder, level=level)
    runs.append(run)
  search = plan_lib.Search(METRIC, higher_is_better, 1)
  plan = plan_lib.Plan('Search', tuple(axes), tuple(runs), search)
  fake_sweep.write_plan(workdir, plan)
  return sweep_lib.read(workdir)
