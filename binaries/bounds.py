r"""Compares a trained FedSoft with the bounds of its paper's Theorems 2 to 4.

  python -m binaries.bounds --config=configs/fed_soft/synthetic.py:10_90 \
    --workdir=runs/synthetic_10_90

takes the initial state and every checkpoint (a run keeps two), runs one round
more from each (nothing of it is kept), and writes evaluation/bounds.csv, one
row for each. It is for the algorithm fed_soft with the model linear_regression,
whose risks are quadratic, and as many clusters as sources. Risks are those of
the sources' held-out examples, importance that of the clients' training
examples.

Columns, `round` being the one that the step starts from:
  theorem_2, theorem_3   largest left side / right side; at most 1 if the
                         theorem holds. Theorem 3 with the printed r, and with
                         one that needs no alpha_0 >= 1/4 (`theorem_3_safe`)
  assumption_1, _2, _4   whether each holds: a finite gamma_0, a finite beta,
                         alpha_0 > 0 (strong convexity, the third, holds or
                         the program ends). Theorem 2 needs all but the fourth,
                         Theorem 3 all
  gamma_0 ... max_gap    the constants: r is `radius`, mu_F `convexity`, L_F
                         `smoothness`, delta and Delta `min_gap` and `max_gap`
  misassignment          p, the largest share of a source's examples that
                         another centre fits better
  rho, floor             of Theorem 4, the least and the largest over sources:
                         read their shape. It promises descent if rho > 0, and
                         its floor is 0 if every client holds every source
  center_error           mean distance of the centres from the sources'
                         minimisers, in units of max_gap
  mixing_error           what center_error would become if everybody took part
                         with perfect importance: what clients that are mixtures
                         cost, which Theorem 4 does not show
  estimation_error       the same with the importance of this round; drawing
                         without replacement costs what is above it
"""

import pathlib
from typing import Any

import numpy as np

from binaries import command
from tff_algos.algorithms.fed_soft import bounds as bounds_lib
from tff_algos.algorithms.fed_soft import quadratic_risks
from tff_algos.core import errors
from tff_algos.experiments import experiment, output, session
from tff_algos.experiments.analyses import linear_rounds

_PRINTED = (
  *('round', 'theorem_2', 'theorem_3', 'gamma', 'alpha_0', 'misassignment'),
  *('rho', 'center_error', 'mixing_error', 'estimation_error'),
)


def compare(
  config: experiment.ExperimentConfig, folder: str
) -> list[dict[str, Any]]:
  """Writes evaluation/bounds.csv; returns its rows.

  Raises:
    UserError: If the theorems do not speak of such an experiment, there is no
      checkpoint, or the held-out examples of a source do not span the features.
  """
  algorithm, options = config.algorithm
  model, model_options = config.model
  if (algorithm, model) != ('fed_soft', 'linear_regression'):
    raise errors.ConfigError(
      'binaries.bounds compares fed_soft on linear_regression with the '
      f'theorems of its paper; config.algorithm.name is {algorithm!r} and '
      f'config.model.name {model!r}. Take a config such as '
      'configs/fed_soft/synthetic.py:10_90'
    )
  with session.open_session(config, folder) as opened:
    problem = linear_rounds.read_problem(
      opened, options, model_options.use_bias
    )
    rows = [
      _row(problem, step) for step in linear_rounds.steps(opened, problem)
    ]
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_table(evaluation / 'bounds.csv', rows)
  return rows


def table(
  rows: list[dict[str, Any]], printed: tuple[str, ...] = _PRINTED
) -> str:
  """Returns some columns, by default those that matter most, a row a line."""
  lines = [
    [f'{row[name]:.3g}' if name in row else '' for name in printed]
    for row in rows
  ]
  return '\n'.join(
    ''.join(
      cell.rjust(max(len(name), 9) + 2)
      for cell, name in zip(line, printed, strict=True)
    )
    for line in (printed, *lines)
  )


def _row(
  problem: linear_rounds.Problem, step: linear_rounds.Step
) -> dict[str, Any]:
  risks, solves = problem.risks, step.solves
  bounds = bounds_lib.measure(risks, solves)
  found = bounds._asdict()
  row = {
    'round': step.round_num,
    'theorem_2': np.nanmax(found.pop('gradient_ratios')),
    'theorem_3': found.pop('distance_ratios').max(),
    'theorem_3_safe': found.pop('safe_distance_ratios').max(),
    'assumption_1': bool(np.isfinite(bounds.gamma_0)),
    'assumption_2': bool(np.isfinite(bounds.beta)),
    'assumption_4': bounds.alpha_0 > 0,
    **found,
    'misassignment': quadratic_risks.misassignment(
      solves.centers, problem.examples
    ),
  }
  for name, centers in (
    ('center_error', solves.centers),
    ('mixing_error', problem.fixed_centers(problem.mixture)),
    ('estimation_error', problem.fixed_centers(step.importance)),
  ):
    distances = np.linalg.norm(centers - risks.minimizers, axis=1)
    row[name] = distances.mean() / bounds.max_gap
  if solves.proximal_weight:
    descent = bounds_lib.descent(
      *(risks, solves, bounds, problem.mixture, problem.num_examples),
      misassignment=row['misassignment'],
      smoother=problem.options.importance_smoother,
      num_draws=problem.num_draws,
    )
    row.update(rho=descent.rho.min(), floor=descent.floor.max())
  return row


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    print(table(compare(experiment.parse(config.value), workdir.value)))

  command.run(main)


if __name__ == '__main__':
  _main()
