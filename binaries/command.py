"""What every binary does the same way: flags, mistakes, Ctrl-C."""

import os

# Before TensorFlow is imported: its start-up notices are no news to a user.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

# pylint: disable=wrong-import-position
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402

from absl import app, flags, logging  # noqa: E402
from ml_collections import config_flags  # noqa: E402

from tff_algos.core import errors  # noqa: E402

_INTERRUPTED = 130


def define_experiment_flags() -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines `--config` and `--workdir`, both required; returns the holders."""
  config = config_flags.DEFINE_config_file(
    'config',
    None,
    'The experiment: a file of configs/, with an optional variant, such as '
    'configs/fed_soft/digits.py:smoke. Its values may be overridden, as in '
    '--config.algorithm.num_clusters=4.',
    lock_config=True,
  )
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of the run; everything is read and written there.'
  )
  flags.mark_flags_as_required(['config', 'workdir'])
  return config, workdir


def run(function: Callable[[], None]) -> None:
  """Parses the flags and runs a binary.

  A mistake of the user becomes one line on stderr and exit status 1; Ctrl-C
  exit status 130. Anything else is a bug and keeps its stack trace.
  """

  def main(argv):
    if len(argv) > 1:
      raise app.UsageError(f'unknown arguments: {" ".join(argv[1:])}')
    logging.set_verbosity(logging.INFO)
    try:
      function()
    except errors.UserError as error:
      logging.error('%s', error)
      sys.exit(1)
    except KeyboardInterrupt:
      logging.info('Interrupted.')
      sys.exit(_INTERRUPTED)

  app.run(main)
