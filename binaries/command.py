"""Flags, `--help`, logging, user errors and signals of all programs.

But of the doctor, which must run where this module's imports fail.
"""

import contextlib
import copy
import functools
import importlib.util
import json
import logging as standard_logging
import os
import pathlib
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from absl import app, flags, logging
from ml_collections import config_flags

from binaries import mirrored_flags
from tff_algos.core import config as config_lib
from tff_algos.core import errors, extras, plugins
from tff_algos.experiments import config_file, config_values

# TensorFlow 2.14 prints three errors about CUDA plug-ins at every import, also
# without a GPU. Its other errors go with them: most raise, too, and of a GPU
# that does not start binaries.doctor tells.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# Beam warns at import that its Google Cloud clients are absent; none is used.
standard_logging.getLogger().addFilter(
  lambda record: 'apitools' not in str(record.msg)
)

# Flags defined in this module are listed as flags of the program by --help.
flags.disclaim_key_flags()

# Exit codes. A bug ends with a stack trace and 1, as in any Python program.
BAD_INPUT = 1
NOT_APPROVED = 3
INFRASTRUCTURE = 75  # EX_TEMPFAIL of sysexits.h: a retry may help.
_REASONS = {
  BAD_INPUT: 'bad_input',
  NOT_APPROVED: 'not_approved',
  INFRASTRUCTURE: 'infrastructure',
}
_RETRIED = (errors.InfrastructureError, errors.LostProcessError)
_NUM_OPEN_FILES = 1 << 16
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM
_CONFIG_FLAGS = ('--config', '-config')
_OVERRIDE = re.compile(r'--?(?:no)?config\.([^=]+)')
# Of options that are no text, nor None.
_DEFINE: dict[type, Callable[..., flags.FlagHolder]] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
}
_Options = TypeVar('_Options')
_OUR_CODE = [
  pathlib.Path(__file__).parents[1] / room
  for room in ('binaries', 'pipelines', 'tff_algos')
]


def define_experiment_flags(
  *, required: bool = True
) -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines `--config` and `--workdir`; returns the holders.

  Also defines `--plugins`.

  Args:
    required: Whether both must be given.
  """
  define_plugins_flag()
  config = config_flags.DEFINE_config_file(
    'config',
    None,
    'The experiment: a file of configs/, with an optional variant, such as '
    'configs/fed_soft/digits.py:smoke. Its values may be overridden, as in '
    '--config.algorithm.num_clusters=4.',
    lock_config=True,
  )
  workdir = flags.DEFINE_string(
    'workdir',
    None,
    'Folder of the run, or of all nights of binaries.nightly; everything is '
    'read and written there. May be an address of an object store, such as '
    's3://bucket/run (docs/scale.md).',
  )
  if required:
    flags.mark_flags_as_required(['config', 'workdir'])
  return config, workdir


def define_options(
  options_class: type[_Options],
  names: Iterable[str],
  **bounds: tuple[float, float | None],
) -> Callable[[], _Options]:
  """Defines a flag for each option; returns the function that reads them.

  Args:
    options_class: A dataclass or named tuple, whose docstring is the help.
    names: Names of its attributes that are flags.
    **bounds: Name -> least and greatest value.
  """
  meanings = config_lib.attribute_docs(options_class)
  defaults, holders = options_class(), {}
  for name in names:
    default = getattr(defaults, name)
    limits = dict(
      zip(('lower_bound', 'upper_bound'), bounds.get(name, ()), strict=False)
    )
    define = _DEFINE.get(type(default), flags.DEFINE_string)
    holders[name] = define(name, default, meanings[name], **limits)
  return lambda: options_class(
    **{name: holder.value for name, holder in holders.items()}
  )


def define_plugins_flag() -> None:
  """Defines `--plugins`; `run` loads them before it reads a config."""
  flags.DEFINE_list(
    'plugins',
    [],
    'Modules that register algorithms, models and sources, such as '
    'my_package.my_module; see docs/own_models.md.',
  )


def define_round_flag(verb: str) -> flags.FlagHolder:
  """Defines `--round`, for `CheckpointManager.find`; returns its holder.

  Args:
    verb: What the program does with the round.
  """
  return flags.DEFINE_string(
    'round',
    'last',
    f'Checkpoint to {verb}: last, best (by config.training.selection), or the '
    'number of a round.',
  )


def define_beam_options_flag() -> flags.FlagHolder:
  """Defines `--beam_options`, for `runner.split_flags`; returns its holder."""
  return flags.DEFINE_string(
    'beam_options',
    '',
    "Apache Beam's pipeline options, in one string, such as "
    "'--direct_num_workers=4 --direct_running_mode=multi_processing'.",
  )


def run(
  function: Callable[[], object],
  *,
  mirrors_folders: bool = True,
  prints_failures: bool = False,
) -> None:
  """Parses the flags and runs a program.

  A user error, also a package of an extra that is not installed, is reported in
  one line on stderr with exit status 1; a full or read-only disk and other
  infrastructure errors of `exit_code_of` in one line with 75, a check that did
  not pass with 3. Ctrl-C ends with 130 and SIGTERM with 143, after cleanup. Any
  other exception is a bug and keeps its stack trace.

  Args:
    function: The program.
    mirrors_folders: Whether the function sees local mirrors of folders in
      object stores, see `mirrored_flags`; if not, it sees to addresses itself.
    prints_failures: Whether an error is also a line of JSON on stdout, see
      `failure_line`.
  """

  def main(_):
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_for_the_user)  # pyright: ignore[reportOptionalMemberAccess]
    standard_logging.getLogger('tensorflow').setLevel(standard_logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    _forbid_hidden_workers()
    _allow_open_files()
    try:
      with contextlib.ExitStack() as stack:
        if prints_failures:
          # Also those of a workdir in an object store, before the function.
          stack.enter_context(_printed_failures())
        stack.enter_context(extras.named())
        if mirrors_folders:
          stack.enter_context(mirrored_flags.mirrored())
        function()
    except BrokenPipeError:
      # The reader of the pipe, such as `head`, has closed it.
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

  parse = functools.partial(_parse_flags, prints_failures=prints_failures)
  app.run(main, flags_parser=parse)


def _allow_open_files() -> None:
  """Lets client states, which are in files of many checkpoints, be open."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  wanted = min(_NUM_OPEN_FILES, hard) if hard >= 0 else _NUM_OPEN_FILES
  if 0 <= soft < wanted:
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exit_code_of(error: errors.UserError | OSError) -> int | None:
  """Returns the exit status of an error; None for a bug."""
  if isinstance(error, OSError):
    return INFRASTRUCTURE if errors.is_of_disk(error) else None
  if isinstance(error, _RETRIED):
    return INFRASTRUCTURE
  if isinstance(error, errors.NotApprovedError):
    return NOT_APPROVED
  return BAD_INPUT


@contextlib.contextmanager
def _printed_failures() -> Generator[None]:
  try:
    yield
  except (errors.UserError, OSError) as error:
    code = exit_code_of(error)
    if code is not None:
      print(failure_line(error, code), flush=True)
    raise


def failure_line(error: Exception, exit_code: int) -> str:
  """Returns an error as one line of JSON, for schedulers.

  Args:
    error: A `UserError`, an `OSError` of the file system, or that of a flag.
    exit_code: Exit code of the program.
  """
  return json.dumps(
    {
      'status': 'failed',
      'reason': _REASONS[exit_code],
      'exit_code': exit_code,
      'error': type(error).__name__,
      'message': str(error),
    }
  )


def _forbid_hidden_workers() -> None:
  """Refuses TFF computations outside the runtime `tff`, if it is chosen."""
  config = flags.FLAGS['config'].value if 'config' in flags.FLAGS else None
  chosen = config and config.get('runtime', {}).get('name') == 'tff'
  # Without TFF, the registry of runtimes refuses the config.
  if chosen and importlib.util.find_spec('tensorflow_federated'):
    from tff_algos.core import tff_compat

    tff_compat.refuse_default_context()


def _report_uncaught(kind, error, trace) -> None:
  """Reports an exception, without a stack trace for Ctrl-C during imports."""
  if issubclass(kind, KeyboardInterrupt):
    sys.stderr.write('Interrupted.\n')
  else:
    sys.__excepthook__(kind, error, trace)


def _signal_again(unraisable) -> None:
  """Sends Ctrl-C or SIGTERM again if a callback swallowed its exception.

  JAX, which TFF imports, registers such a callback with Python's garbage
  collector.
  """
  error = unraisable.exc_value
  if isinstance(error, KeyboardInterrupt):
    signum = signal.SIGINT
  elif isinstance(error, SystemExit) and error.code == _TERMINATED:
    signum = signal.SIGTERM
  else:
    _report_unraisable(unraisable)
    return
  # Sent later: an exception raised here would be swallowed as well.
  again = (threading.main_thread().ident, signum)
  threading.Timer(0.05, signal.pthread_kill, again).start()


sys.excepthook = _report_uncaught
_report_unraisable, sys.unraisablehook = sys.unraisablehook, _signal_again


class _HelpFlag(flags.BooleanFlag):
  """`--help`: the docstring and the flags of the program, then `--helpfull`."""

  def __init__(self):
    """Creates the flag, in place of the one that absl defines."""
    super().__init__(
      'help', False, 'show this help', short_name='?', allow_override=True
    )

  def parse(self, argument):
    """Prints the help and exits with absl's status, 1."""
    super().parse(argument)
    if self.value:
      # An empty line and the path of the program precede the flags.
      own_flags = flags.FLAGS.main_module_help().splitlines()[2:]
      print(sys.modules['__main__'].__doc__, 'Flags:', *own_flags, sep='\n')
      print('\n--helpfull also lists the flags of absl and of other packages.')
      sys.exit(1)


def _parse_flags(argv: list[str], *, prints_failures: bool) -> list[str]:
  """Parses flags; reports an invalid flag, config or override in one line.

  The config file and plug-ins import TensorFlow, which takes seconds, and so do
  the functions of programs: all other flags are checked before.
  """
  flags.FLAGS['help'] = _HelpFlag()
  try:
    with extras.named():
      argv = _with_found_config(flags.FLAGS.read_flags_from_files(argv))
      if 'config' in flags.FLAGS:
        others = _parse_all_but_config(argv)
        plugins.load(others.plugins)
        if others.config is not None:
          check_overrides(others.config, argv)
      rest = _parse(flags.FLAGS, argv)
      if 'plugins' in flags.FLAGS:
        plugins.load(flags.FLAGS.plugins)
      return rest
  except (errors.UserError, flags.Error) as error:
    if prints_failures:
      print(failure_line(error, BAD_INPUT), flush=True)
    sys.stderr.write(f'{" ".join(str(error).split())}\n')
    sys.exit(BAD_INPUT)


def _parse(values: flags.FlagValues, argv: list[str]) -> list[str]:
  """Parses flags, and refuses arguments that are none."""
  rest = values(argv)
  if len(rest) > 1:
    raise flags.Error(f'unknown arguments: {" ".join(rest[1:])}; see --help')
  return rest


def _parse_all_but_config(argv: list[str]) -> flags.FlagValues:
  """Parses all flags but overrides; `config` is then the path and variant.

  Raises:
    flags.Error: If a flag is unknown or missing, or its value is invalid.
  """
  values = copy.deepcopy(flags.FLAGS)
  is_required = bool(values['config'].validators)
  flags.DEFINE_string(
    'config', None, 'Path.', flag_values=values, allow_override=True
  )
  if is_required or any(map(_OVERRIDE.match, argv)):
    flags.mark_flag_as_required('config', flag_values=values)
  others = []
  for previous, argument in zip(['', *argv], argv, strict=False):
    is_value = _OVERRIDE.fullmatch(previous) and not argument.startswith('--')
    if not (is_value or _OVERRIDE.match(argument)):
      others.append(argument)
  _parse(values, others)
  return values


def check_overrides(config_path: str, argv: list[str]) -> None:
  """Checks the config file and the keys of overriding flags.

  The config flag checks them as well, but its errors do not name the section
  that lacks the key.

  Raises:
    ConfigError: If there is no such file, variant or key, or an override is of
      an element.
  """
  config = config_file.load(config_path).to_dict()
  for argument in argv:
    override = _OVERRIDE.match(argument)
    if override:
      _check_override(config_path, config, override[1])


def _check_override(
  config_path: str, config: dict[str, Any], spelled: str
) -> None:
  key, bracket, _ = spelled.partition('[')
  try:
    value = config_values.value_of(config, key)
  except errors.ConfigError as error:
    from tff_algos.experiments import config_reference

    if not config_reference.has_option(config, key):
      raise
    raise errors.ConfigError(
      f'{error}. config.{key} is an option that {config_path} does not set: '
      'add it there, or start that file from configs.base.experiment, which '
      'has all options'
    ) from error
  if bracket:
    raise errors.ConfigError(
      f'--config.{spelled} sets an element, and a flag sets whole values; give '
      f'the whole one, which is now --config.{key}="{value}"'
    )


def _with_found_config(argv: list[str]) -> list[str]:
  """Returns the arguments with the path in `--config` resolved by `find`."""
  found = []
  for previous, argument in zip(['', *argv], argv, strict=False):
    name, equals, value = argument.partition('=')
    if equals and name in _CONFIG_FLAGS:
      argument = f'{name}={config_file.find(value)}'
    elif previous in _CONFIG_FLAGS:
      argument = config_file.find(argument)
    found.append(argument)
  return found


def _is_for_the_user(record: standard_logging.LogRecord) -> bool:
  """Passes log records of this project, and warnings of other packages."""
  program = getattr(sys.modules['__main__'], '__file__', None) or '-c'
  folders = pathlib.Path(record.pathname).parents
  ours = {pathlib.Path(program).parent, *_OUR_CODE} & {*folders}
  return bool(ours) or record.levelno >= standard_logging.WARNING
