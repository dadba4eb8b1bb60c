"""What every binary does the same way: flags, log lines, mistakes, Ctrl-C."""

import errno
import logging as standard_logging
import os
import pathlib
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from absl import app, flags, logging
from ml_collections import config_flags

from tff_algos.core import errors
from tff_algos.experiments import config_file, config_values

# Before TensorFlow is imported: what it says when it starts (which CUDA
# libraries are not there) is no news to a user.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

# Beam warns at import that its Google Cloud clients are absent; we use none.
standard_logging.getLogger().addFilter(
  lambda record: 'apitools' not in str(record.msg)
)

# The flags that are defined here are those of the binary, in its --help.
flags.disclaim_key_flags()

# Exit codes. A bug of ours ends as Python ends it, with a trace and 1.
BAD_INPUT = 1
INFRASTRUCTURE = 75  # EX_TEMPFAIL of sysexits.h: trying again may help.
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM
# What a person can mend, whatever was being written or read.
_DISK_REFUSES = {
  *(errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EPERM),
  errno.EROFS,
}
_CONFIG_FLAGS = ('--config', '-config')
_OUR_CODE = [
  pathlib.Path(__file__).parents[1] / room
  for room in ('binaries', 'pipelines', 'tff_algos')
]


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


def run(function: Callable[[], object]) -> None:
  """Parses the flags and runs a binary.

  A mistake of the user becomes one line on stderr and exit status 1; a disk
  that is full or refuses, and what else `exit_code_of` calls infrastructure,
  one line and 75; Ctrl-C 130 and SIGTERM 143, with all cleaned up. Anything
  else is a bug and keeps its stack trace.
  """

  def main(argv):
    if len(argv) > 1:
      _end_with(f'unknown arguments: {" ".join(argv[1:])}; see --help')
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_for_the_user)  # pyright: ignore[reportOptionalMemberAccess]
    standard_logging.getLogger('tensorflow').setLevel(standard_logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    try:
      function()
    except BrokenPipeError:
      # Whoever read our output, such as `head`, has seen enough.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (errors.UserError, OSError) as error:
      code = exit_code_of(error)
      if code is None:
        raise
      logging.error('%s', error)
      sys.exit(code)
    except KeyboardInterrupt:
      logging.info('Interrupted.')
      sys.exit(_INTERRUPTED)

  app.run(main, flags_parser=_parse_flags)


def exit_code_of(error: errors.UserError | OSError) -> int | None:
  """Returns the exit status for an error; None if it is a bug of ours."""
  if isinstance(error, OSError):
    return INFRASTRUCTURE if error.errno in _DISK_REFUSES else None
  if isinstance(error, errors.InfrastructureError):
    return INFRASTRUCTURE
  return BAD_INPUT


def _report_uncaught(kind, error, trace) -> None:
  """Reports an exception; Ctrl-C while modules are imported needs no trace."""
  if issubclass(kind, KeyboardInterrupt):
    sys.stderr.write('Interrupted.\n')
  else:
    sys.__excepthook__(kind, error, trace)


def _interrupt_again(unraisable) -> None:
  """Sends Ctrl-C once more: it fell into a callback, which swallowed it.

  JAX, which TFF imports, has one for Python's garbage collection.
  """
  if unraisable.exc_type is KeyboardInterrupt:
    # Later: the exception may not rise out of here either.
    again = (threading.main_thread().ident, signal.SIGINT)
    threading.Timer(0.05, signal.pthread_kill, again).start()
  else:
    _report_unraisable(unraisable)


sys.excepthook = _report_uncaught
_report_unraisable, sys.unraisablehook = sys.unraisablehook, _interrupt_again


def _parse_flags(argv: list[str]) -> list[str]:
  """Parses flags; a wrong config or override ends in one line, not a trace."""
  try:
    argv = _with_found_config(argv)
    if 'config' in flags.FLAGS:
      check_overrides(argv)
    return flags.FLAGS(argv)
  except (errors.ConfigError, flags.Error) as error:
    _end_with(' '.join(str(error).split()))


def check_overrides(argv: list[str]) -> None:
  """Checks the config file and the keys that flags override.

  A config flag does so too, but its errors hide which section lacks the key.

  Raises:
    ConfigError: If there is no such file, variant or key.
  """
  values = flags.FlagValues()
  values.set_gnu_getopt(True)
  flags.DEFINE_string('config', None, 'A file.', flag_values=values)
  values(argv, known_only=True)
  if values.config is None:
    return
  config = config_file.load(values.config).to_dict()
  for argument in argv:
    override = re.match(r'--?(?:no)?config\.([\w.]+)', argument)
    if override:
      config_values.check_key(config, override[1])


def _with_found_config(argv: list[str]) -> list[str]:
  """Returns arguments whose `--config` names a file where it was found."""
  found = []
  for previous, argument in zip(['', *argv], argv, strict=False):
    name, equals, value = argument.partition('=')
    if equals and name in _CONFIG_FLAGS:
      argument = f'{name}={config_file.find(value)}'
    elif previous in _CONFIG_FLAGS:
      argument = config_file.find(argument)
    found.append(argument)
  return found


def _end_with(words: str) -> NoReturn:
  sys.stderr.write(f'{words}\n')
  sys.exit(1)


def _is_for_the_user(record: standard_logging.LogRecord) -> bool:
  """Lets through our own words, and warnings of others."""
  program = getattr(sys.modules['__main__'], '__file__', None) or '-c'
  folders = pathlib.Path(record.pathname).parents
  ours = {pathlib.Path(program).parent, *_OUR_CODE} & {*folders}
  return bool(ours) or record.levelno >= standard_logging.WARNING
