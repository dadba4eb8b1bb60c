r"""Compares a pFedKM run with the bound of its paper's Theorem 1.

  python -m binaries.envelope_bounds --config=configs/pfedkm/regressions.py \
    --workdir=runs/pfedkm_regressions

repeats the run's rounds from the initial state (nothing of them is kept), and
writes evaluation/envelope_bounds.csv, a row for each number of rounds. It is
for the algorithm pfedkm with all clients in every round and the model
linear_regression, whose envelopes and their gradients are exact by linear
algebra.

Columns:
  rounds                  T
  mean_squared_gradient   1/T sum_t 1/K |grad F_K(Omega^t)|^2
  bound                   the right side of Eq. 24, with these constants; its
                          terms are start ... floor
  theorem                 Theorem 1 (Eq. 27), had the run taken its step; empty
                          unless the objective fell
  learning_rate_excess    client_learning_rate over the largest that the proof
                          allows, 1 / (L_F sqrt(432 R 2^R)). Above 1 the bound
                          is no theorem, only a number
  settled_round ...       the constants: T_C, rho_Omega, rho_g, Delta_F, L_F,
                          and delta, the root mean square over clients of the
                          error of a round's first solve, of the worst round so
                          far; batches that are not the whole of a client's data
                          are part of it
"""

import pathlib
from typing import Any

import numpy as np

from binaries import bounds, command
from tff_algos.algorithms.pfedkm import bounds as bounds_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment, output, session
from tff_algos.experiments.analyses import envelope_rounds

_PRINTED = (
  *('rounds', 'mean_squared_gradient', 'bound', 'floor', 'theorem'),
  *('learning_rate_excess', 'prox_error', 'settled_round'),
)


def compare(
  config: experiment.ExperimentConfig, folder: str
) -> list[dict[str, Any]]:
  """Writes evaluation/envelope_bounds.csv; returns its rows.

  Raises:
    UserError: If the theorem does not speak of such an experiment.
  """
  algorithm, options = config.algorithm
  model, model_options = config.model
  if (algorithm, model) != ('pfedkm', 'linear_regression'):
    raise errors.ConfigError(
      'binaries.envelope_bounds compares pfedkm on linear_regression with the '
      f'theorem of its paper; config.algorithm.name is {algorithm!r} and '
      f'config.model.name {model!r}. Take a config such as '
      'configs/pfedkm/regressions.py'
    )
  config.lr_schedule.check_constant('the theorem')
  if options.cohort_size or options.weighting != 'uniform':
    raise errors.ConfigError(
      'the theorem speaks of all clients in every round, and of plain means; '
      f'config.algorithm.cohort_size is {options.cohort_size} and weighting '
      f'{options.weighting!r}: set them to 0 and to uniform'
    )
  with session.open_session(config, folder) as opened:
    envelopes = envelope_rounds.read_envelopes(
      opened, options, model_options.use_bias
    )
    history, prox_errors = envelope_rounds.repeat(opened, envelopes)
  rows = [
    _row(envelopes, options, [one[: t + 1] for one in history], prox_error)
    for t, prox_error in enumerate(np.maximum.accumulate(prox_errors), start=1)
  ]
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  output.write_table(evaluation / 'envelope_bounds.csv', rows)
  return rows


def _row(envelopes, options, history, prox_error) -> dict[str, Any]:
  training, num_rounds = options.local_training, len(history[0]) - 1
  constants = bounds_lib.Constants(
    num_clients=history[2].shape[1],
    num_clusters=options.num_clusters,
    num_local_steps=training.num_local_steps,
    client_learning_rate=training.client_learning_rate,
    server_mixing=options.server_mixing,
    proximal_weight=training.proximal_weight,
    smoothness=envelopes.smoothness,
    prox_error=float(prox_error),
  )
  measured = bounds_lib.measure(*history)
  bound = bounds_lib.explicit_bound(constants, measured, num_rounds)
  row = {
    'rounds': num_rounds,
    'bound': bound.total,
    'learning_rate_excess': constants.learning_rate_excess,
    **bound._asdict(),
    **measured._asdict(),
    'smoothness': constants.smoothness,
    'prox_error': constants.prox_error,
  }
  if measured.objective_gap > 0:
    found = bounds_lib.theorem(constants, measured, num_rounds)
    row.update(theorem=found.bound, theorem_step=found.step)
  return row


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
