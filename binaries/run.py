r"""Runs an experiment whole, from raw data to a served prediction.

  python -m binaries.run --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

is preprocess, train, evaluate and export one after the other, and then proves
the result: it starts binaries.serve on free loopback ports, lets a client
process (binaries.predict) ask it over HTTP, and ends the server again.
"""

from binaries import command
from tff_algos.experiments import end_to_end, experiment


def _main() -> None:
  config, workdir = command.define_experiment_flags()

  def main() -> None:
    text = end_to_end.run(experiment.parse(config.value), workdir.value)
    print(text, flush=True)

  command.run(main)


if __name__ == '__main__':
  _main()
