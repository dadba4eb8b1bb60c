r"""Measures the variance of a round, clients that do not exist, and atoms.

  python -m binaries.factors \
    --config=configs/filter_decomposition/fashion_mnist.py \
    --workdir=runs/factors

takes the initial state and every checkpoint, runs the next round from each
(nothing of it is kept), and writes evaluation/factors.csv, one row for each,
`round` being the one that the step starts from. It is for algorithms with one
model at the server: fed_avg, scaffold, fed_dyn, fed_dc and filter_decomposition
(Chen and Qiu 2025, arXiv:2503.08652, sections 5.1 and 7.1). A run keeps two
checkpoints; for the variance over the whole training let it keep more, with
--config.training.checkpoint_interval=20
--config.training.num_kept_checkpoints=30. binaries.compare then draws it beside
that of other runs.

Columns:
  variance           of the kernels of convolutions over --num_repeats rounds,
                     each with a cohort and an order of examples of its own;
                     factors are multiplied first
  relative_variance  that over the squared norm of their mean
  num_latent         m^2 - m, one's coefficients with the atoms of another
  latent_loss, latent_score, real_loss, real_score
                     means over --num_pairs of these, and over the round's
                     clients, on --num_examples held-out examples; empty without
                     atoms, and where the next round sends no coefficients

Of the latest checkpoint of a network with atoms it also writes
evaluation/atoms.csv, one row for each atom (its entries, the norm of its
coefficients), and own_atoms.csv, one row for each client (how far its own atoms
are from the global ones; 0 where it never trained any), and draws the report of
an evaluated run anew.
"""

import pathlib
from typing import Any

from absl import flags

from binaries import bounds, command
from tff_algos.algorithms import registry
from tff_algos.core import errors
from tff_algos.experiments import experiment, output, session, starts
from tff_algos.experiments.analyses import factor_rounds, filter_atoms
from tff_algos.reports.run import page

_ALGORITHMS = (*registry.HOSTS, 'filter_decomposition')


def measure(
  config: experiment.ExperimentConfig, folder: str, sizes: factor_rounds.Sizes
) -> list[dict[str, Any]]:
  """Writes the tables and draws the report; returns the rows of factors.csv.

  Raises:
    UserError: If the algorithm has another server, or there is no checkpoint.
  """
  name, _ = registry.parse_config(config.algorithm)
  if name not in _ALGORITHMS:
    raise errors.ConfigError(
      f'binaries.factors is for {", ".join(_ALGORITHMS)}, which have one model '
      f'at the server, but config.algorithm.name is {name!r}'
    )
  with session.open_session(config, folder) as opened:
    examples = opened.dataset.held_out(0)
    rows = []
    for round_num, state in starts.starts(opened):
      call = round_num + 1, state
      rows.append(
        {
          'round': round_num,
          **factor_rounds.variance(opened, *call, sizes),
          **factor_rounds.latent(opened, *call, examples, sizes),
        }
      )
    # The last state is that of the latest checkpoint, as are the clients'.
    tables = {
      'factors.csv': rows,
      'atoms.csv': filter_atoms.atom_rows(state.model_weights),  # pyright: ignore[reportPossiblyUnboundVariable]
      'own_atoms.csv': filter_atoms.own_rows(opened, state),  # pyright: ignore[reportPossiblyUnboundVariable]
    }
  evaluation = pathlib.Path(folder, 'evaluation')
  evaluation.mkdir(exist_ok=True)
  for name, table in tables.items():
    if tables['atoms.csv'] or name == 'factors.csv':
      output.write_table(evaluation / name, table)
  if (evaluation / 'summary.json').is_file():
    page.write_report(folder)
  return rows


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  defaults = factor_rounds.Sizes()
  values = {
    'num_repeats': flags.DEFINE_integer(
      'num_repeats', defaults.num_repeats, 'Rounds a state.', lower_bound=2
    ),
    'num_pairs': flags.DEFINE_integer(
      'num_pairs', defaults.num_pairs, 'Latent clients.', lower_bound=1
    ),
    'num_examples': flags.DEFINE_integer(
      'num_examples', defaults.num_examples, 'Held-out ones.', lower_bound=1
    ),
  }

  def main() -> None:
    sizes = factor_rounds.Sizes(
      **{name: flag.value for name, flag in values.items()}
    )
    rows = measure(experiment.parse(config.value), workdir.value, sizes)
    print(bounds.table(rows, tuple(rows[0])))

  command.run(main)


if __name__ == '__main__':
  _main()
