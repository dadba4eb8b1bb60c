r"""Compares a CMFL run with the bound of its paper's Theorem 1.

  python -m binaries.committee_bounds \
    --config=configs/cmfl/regressions.py:dissimilar \
    --workdir=runs/cmfl_regressions

repeats the run's rounds from the initial state (nothing of them is kept), and
writes evaluation/committee_bounds.csv, a row for each number of rounds. It is
for the algorithm cmfl with SGD on whole batches, a weight_decay > 0 and the
model linear_regression, whose objectives are quadratic, so all but phi_min and
phi_max is exact; these are over the selections that the run made.

Columns:
  rounds            T
  gap               F(w^T) - F^*, of all clients' training examples
  bound             the theorem's right side; its terms are steps ... floor
  step_excess       the last step over the theorem's 1 / (mu (t + gamma)). Not
                    1: the bound is no theorem, only a number. Set
                    config.algorithm.rate_offset to gamma, and
                    client_learning_rate * server_learning_rate to 1 / (mu
                    gamma); with upload=update and one local step
  skew              phi of the last selection: its mean loss over that of all;
                    skew_min is the least so far, skew_max the largest at w^*
  heterogeneity ... the constants: Gamma, mu, L, gamma, G^2, kappa^2
"""

import pathlib
from typing import Any

from binaries import bounds, command
from tff_algos.core import errors
from tff_algos.experiments import experiment, output, session
from tff_algos.experiments.analyses import committee_rounds

_PRINTED = (
  *('rounds', 'gap', 'bound', 'floor', 'step_excess', 'skew', 'skew_min'),
  *('skew_max', 'heterogeneity', 'offset'),
)


def compare(
  config: experiment.ExperimentConfig, folder: str
) -> list[dict[str, Any]]:
  """Writes evaluation/committee_bounds.csv; returns its rows.

  Raises:
    UserError: If the theorem does not speak of such an experiment.
  """
  algorithm, options = config.algorithm
  model, model_options = config.model
  if (algorithm, model) != ('cmfl', 'linear_regression'):
    raise errors.ConfigError(
      'binaries.committee_bounds compares cmfl on linear_regression with the '
      f'theorem of its paper; config.algorithm.name is {algorithm!r} and '
      f'config.model.name {model!r}. Take a config such as '
      'configs/cmfl/regressions.py'
    )
  config.lr_schedule.check_constant('the theorem')
  with session.open_session(config, folder) as opened:
    objectives = committee_rounds.read_objectives(
      opened, options, model_options.use_bias
    )
    rows = committee_rounds.repeat(opened, options, objectives)
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_table(evaluation / 'committee_bounds.csv', rows)
  return rows


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    rows = compare(experiment.parse(config.value), workdir.value)
    # Every doubling, and the end.
    shown = [row for row in rows if not row['rounds'] & (row['rounds'] - 1)]
    shown += [] if rows[-1] in shown else rows[-1:]
    print(bounds.table(shown, _PRINTED))

  command.run(main)


if __name__ == '__main__':
  _main()
