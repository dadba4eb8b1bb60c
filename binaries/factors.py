r"""Measures update variance, latent clients and filter atoms of a run.

  python -m binaries.factors \
    --config=configs/filter_decomposition/fashion_mnist.py \
    --workdir=runs/factors

runs the next round from the initial state and from every checkpoint (results
are discarded), and writes evaluation/factors.csv, one row for each starting
state, whose round is `round`. It supports algorithms with one server model:
fed_avg, scaffold, fed_dyn, fed_dc and filter_decomposition (Chen and Qiu 2025,
arXiv:2503.08652, sections 5.1 and 7.1). A run keeps two checkpoints; for the
variance over the whole training keep more, with
--config.training.checkpoint_interval=20
--config.training.num_kept_checkpoints=30. binaries.compare then draws the
variances of several runs together.

Columns:
  variance           variance of the convolution kernels over --num_repeats
                     rounds with different cohorts and example orders;
                     factorized kernels are multiplied out first
  relative_variance  variance divided by the squared norm of the mean kernels
  num_latent         m^2 - m latent clients: the coefficients of one of m
                     clients with the atoms of another
  latent_loss, latent_score, real_loss, real_score
                     means over --num_pairs latent clients, and over the round's
                     clients, on --num_examples held-out examples; empty without
                     atoms, and where the next round sends no coefficients

For the latest checkpoint of a network with atoms it also writes
evaluation/atoms.csv, one row for each atom (its entries, the norm of its
coefficients), and own_atoms.csv, one row for each client (distance of its own
atoms from the global ones; 0 if it never trained any), and updates the report
of an evaluated run.
"""

from absl import flags

from binaries import command
from tff_algos.experiments import experiment, output
from tff_algos.experiments.analyses import factors


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  defaults = factors.Sizes()
  values = {
    'num_repeats': flags.DEFINE_integer(
      'num_repeats',
      defaults.num_repeats,
      'Rounds from each state.',
      lower_bound=2,
    ),
    'num_pairs': flags.DEFINE_integer(
      'num_pairs', defaults.num_pairs, 'Latent clients.', lower_bound=1
    ),
    'num_examples': flags.DEFINE_integer(
      'num_examples', defaults.num_examples, 'Held-out ones.', lower_bound=1
    ),
  }

  def main() -> None:
    sizes = factors.Sizes(**{name: flag.value for name, flag in values.items()})
    rows = factors.measure(experiment.parse(config.value), workdir.value, sizes)
    print(output.table_text(rows, tuple(rows[0])))

  command.run(main)


if __name__ == '__main__':
  _main()
