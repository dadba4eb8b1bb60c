r"""Compares a run with the convergence bounds of its algorithm's paper.

  python -m binaries.bounds --config=configs/fed_soft/synthetic.py:10_90 \
    --workdir=runs/synthetic_10_90

is for the model linear_regression, whose constants (smoothness, strong
convexity, distances from the minimum) are exact by linear algebra, and for

  fed_soft  Theorems 2 to 4: runs one more round from the initial state and from
            every checkpoint (a run keeps two); one row each
  pfedkm    Theorem 1: repeats the run's rounds from the initial state; one row
            for each number of rounds
  cmfl      Theorem 1: likewise

The results of these rounds are discarded. Writes evaluation/bounds.csv, and
prints its main columns with their meaning; the others are described in
tff_algos/experiments/analyses/<algorithm>_bounds.py.
"""

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    from tff_algos.experiments import experiment
    from tff_algos.experiments.analyses import bounds

    parsed = experiment.parse(config.value)
    print(bounds.text(parsed, bounds.measure(parsed, workdir.value)))

  command.run(main)


if __name__ == '__main__':
  _main()
