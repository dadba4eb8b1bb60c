r"""Measures update variance, latent clients and filter atoms of a run.

  python -m binaries.factors \
    --config=configs/filter_decomposition/global_models.py \
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
                     clients, on --num_examples held-out examples of the first
                     source; these columns are empty without atoms or such
                     examples, and where the next round sends no coefficients

For the latest checkpoint of a network with atoms it also writes
evaluation/atoms.csv, one row for each atom (its entries, the norm of its
coefficients), and own_atoms.csv, one row for each client (distance of its own
atoms from the global ones; 0 if it never trained any), and updates the report
of an evaluated run.
"""

from absl import flags

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  num_repeats = flags.DEFINE_integer(
    'num_repeats', 10, 'Rounds from each state.', lower_bound=2
  )
  num_pairs = flags.DEFINE_integer(
    'num_pairs', 20, 'Latent clients to evaluate.', lower_bound=1
  )
  num_examples = flags.DEFINE_integer(
    'num_examples',
    500,
    'Held-out examples of the first source to evaluate latent clients on.',
    lower_bound=1,
  )

  def main() -> None:
    from tff_algos.experiments import experiment, tables
    from tff_algos.experiments.analyses import factors

    sizes = factors.Sizes(
      num_repeats.value, num_pairs.value, num_examples.value
    )
    rows = factors.measure(experiment.parse(config.value), workdir.value, sizes)
    print(tables.table_text(rows, tuple(max(rows, key=len))))

  command.run(main)


if __name__ == '__main__':
  _main()
