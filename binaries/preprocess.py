"""Builds the federated dataset of an experiment and publishes it.

  python -m binaries.preprocess --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

writes the dataset to <workdir>/dataset. Running it again with the same config
and raw data gives the same version. Beam's own options choose the engine:

  --beam_options='--direct_num_workers=4 --direct_running_mode=multi_processing'
"""

import pathlib
import shlex
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from pipelines import build_dataset, options
from tff_algos.core import config as config_lib
from tff_algos.core import errors

_CONFIG = config_flags.DEFINE_config_file(
  'config',
  None,
  'The experiment; its part `dataset` is built.',
  lock_config=True,
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run; the dataset goes to <workdir>/dataset.'
)
_BEAM_OPTIONS = flags.DEFINE_string(
  'beam_options',
  '',
  "Apache Beam's own options, in one string, such as "
  "'--direct_num_workers=4 --direct_running_mode=multi_processing'.",
)


def preprocess(config, workdir: str, beam_options: str) -> None:
  """Builds the dataset that `config.dataset` describes."""
  dataset_config = config_lib.from_dict(
    options.DatasetConfig, config.to_dict()['dataset'], 'config.dataset'
  )
  result = build_dataset.build(
    dataset_config,
    pathlib.Path(workdir) / 'dataset',
    shlex.split(beam_options),
  )
  logging.info('%s', build_dataset.summarize(result))


def main(argv: list[str]) -> None:
  """Runs `preprocess` and turns mistakes of the user into one clear line."""
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments: {" ".join(argv[1:])}')
  try:
    preprocess(_CONFIG.value, _WORKDIR.value, _BEAM_OPTIONS.value)
  except errors.UserError as error:
    logging.error('%s', error)
    sys.exit(1)


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
