r"""Exports the trained models as SavedModels.

  python -m binaries.export --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

writes the next version of export/cluster_models and export/personalized_models
from the latest checkpoint (or that of --round), in the layout of TensorFlow
Serving. --client_id exports the model of one client only.
"""

from absl import flags, logging

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_num = flags.DEFINE_integer(
    'round', None, 'Round to export; default: the latest checkpoint.'
  )
  client_id = flags.DEFINE_string(
    'client_id', None, 'Export the model of this client only.'
  )

  def main() -> None:
    from tff_algos.experiments import experiment, exporting

    for path in exporting.export(
      experiment.parse(config.value),
      workdir.value,
      round_num.value,
      client_id.value,
    ):
      logging.info('Exported %s', path)

  command.run(main)


if __name__ == '__main__':
  _main()
