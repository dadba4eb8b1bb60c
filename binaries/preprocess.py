r"""Builds the federated dataset of an experiment and publishes it.

  python -m binaries.preprocess --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

writes the dataset to <workdir>/dataset. Running it again with the same config
and raw data gives the same version. Beam's own options choose the engine:

  --beam_options='--direct_num_workers=4 --direct_running_mode=multi_processing'
"""

import os
import pathlib
import shlex

from absl import flags, logging

from binaries import command, experiment
from pipelines import build_dataset, options


def preprocess(
  config: options.DatasetConfig,
  folder: str | os.PathLike[str],
  beam_options: str = '',
) -> None:
  """Builds a dataset in `<folder>/dataset`.

  Raises:
    UserError: If the raw data, the partition or the disk does not allow it;
      a version that was published before stays.
  """
  result = build_dataset.build(
    config, pathlib.Path(folder) / 'dataset', shlex.split(beam_options)
  )
  logging.info('%s', build_dataset.summarize(result))


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  beam_options = flags.DEFINE_string(
    'beam_options',
    '',
    "Apache Beam's own options, in one string, such as "
    "'--direct_num_workers=4 --direct_running_mode=multi_processing'.",
  )
  command.run(
    lambda: preprocess(
      experiment.parse(config.value).dataset, workdir.value, beam_options.value
    )
  )


if __name__ == '__main__':
  _main()
