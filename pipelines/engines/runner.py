"""Execution of a pipeline on Beam's local runner or the runner of its flags."""

import contextlib
import signal
import threading
import types
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options import pipeline_options as beam_options
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import runner as beam_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner

from pipelines.engines import failures
from tff_algos.core import errors

_LOCAL = 'DirectRunner'
# Beam accepts this one by its full name only.
_LONG_NAMES = {'DaskRunner': 'apache_beam.runners.dask.dask_runner.DaskRunner'}
# By default Beam makes one partition for 128 blocks, which leaves most workers
# idle. Dask shuffles up to 32 partitions in one stage.
_DASK_PARTITIONS = '--dask_npartitions=32'
# Exit codes of a process that was killed, ran out of memory or crashed: 128 +
# the signal if /bin/sh waits for it (dash), minus the signal if the shell has
# replaced itself by the process (bash).
_DEADLY = {
  str(code)
  for number in (
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT),
    *(signal.SIGBUS, signal.SIGILL),
  )
  for code in (128 + number, -number)
}


@contextlib.contextmanager
def run_pipeline(flags: Sequence[str]) -> Generator[beam.Pipeline]:
  """Yields an empty pipeline, and runs it at the end of the block.

  Without a runner, and for `DirectRunner`, Beam's Python runner is used. Beam's
  `DirectRunner` would first try to download and start Prism, and only then fall
  back to it.

  Args:
    flags: Beam's pipeline options, such as `['--direct_num_workers=2']`.

  Raises:
    ConfigError: If Beam does not accept an option or its value.
    InfrastructureError: If the runner cannot be reached, or is lost.
    UserError: Error of a step within `failures.carried`.
  """
  pipeline = _create_pipeline(flags)
  try:
    with _watch_workers() as ends:
      try:
        with _interrupts_kept(), pipeline:
          yield pipeline
      except (Exception, KeyboardInterrupt) as error:
        raise _find_reason(error, flags, ends) from None
  finally:
    # Dask's runner opens a client for each pipeline and never closes it.
    client = getattr(getattr(pipeline, 'result', None), 'client', None)
    if client is not None:
      client.close()


def _find_reason(
  error: BaseException, flags: Sequence[str], ends: Sequence[str]
) -> BaseException:
  """Returns the error of a step, or of the runner."""
  reason = failures.find(error) or error
  if ends and (reason is error or isinstance(reason, KeyboardInterrupt)):
    return errors.InfrastructureError(
      f'a worker process of Beam was lost ({ends[0]}; 137 or -9 is a kill, '
      'often for want of memory). Run this again, with fewer workers or more '
      'dataset.num_shards if memory is short.'
    )
  is_engines_own = type(reason).__module__.split('.')[0] in (
    *('distributed', 'grpc'),
  )
  if is_engines_own or isinstance(reason, (ConnectionError, TimeoutError)):
    words = str(reason).splitlines()[0] if str(reason) else type(reason)
    return errors.InfrastructureError(
      f'the engine of {" ".join(flags)!r} failed: {words}. Check that it is '
      'up and that its workers have memory enough, and run this again.'
    )
  return reason


@contextlib.contextmanager
def _interrupts_kept() -> Generator[None]:
  """Raises KeyboardInterrupt at the end of the block, if it was lost within.

  Python drops exceptions raised in a destructor or a callback from C, where a
  signal may arrive; the build would then continue to its end.
  """
  before = signal.getsignal(signal.SIGINT)
  is_main = threading.current_thread() is threading.main_thread()
  if not (is_main and callable(before)):
    yield
    return
  seen: list[int] = []

  def notice(number: int, frame: types.FrameType | None) -> None:
    seen.append(number)
    before(number, frame)

  signal.signal(signal.SIGINT, notice)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)
  if seen:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _watch_workers() -> Generator[list[str]]:
  """Interrupts the wait for a local worker process that has exited.

  Beam starts each worker from its own thread, and would wait for a response for
  ever: only the exception of that thread reveals the exit. Yields a list that
  receives the text of this exception.
  """
  ends: list[str] = []
  before = threading.excepthook
  # None if the thread was not started.
  main_thread = threading.main_thread().ident or 0

  def notice(args: threading.ExceptHookArgs) -> None:
    words = str(args.exc_value)
    code = words.rpartition('return code ')[2]
    if ends or code not in _DEADLY:
      before(args)
    else:
      ends.append(words)
      signal.pthread_kill(main_thread, signal.SIGINT)

  threading.excepthook = notice
  try:
    yield ends
  finally:
    threading.excepthook = before


def _create_pipeline(flags: Sequence[str]) -> beam.Pipeline:
  try:
    options = _parse(flags)
    name = str(options.view_as(beam_options.StandardOptions).runner or _LOCAL)
    # Loading a runner also registers its options.
    runner = None
    if name != _LOCAL:
      runner = beam_runner.create_runner(_LONG_NAMES.get(name, name))
    known = options.get_all_options()
    given = options.get_all_options(retain_unknown_options=True)
  except SystemExit:  # Beam parses flags with argparse.
    raise errors.ConfigError(
      f'Beam refuses a value in these options: {" ".join(flags)}'
    ) from None
  except (AttributeError, ImportError, ValueError) as error:
    raise errors.ConfigError(
      f'Beam cannot use the options {" ".join(flags)!r}: {error}'
    ) from None
  if given.keys() != known.keys():
    unknown = ', '.join(sorted(given.keys() - known.keys()))
    raise errors.ConfigError(f'Beam has no option {unknown} (with this runner)')
  try:
    return beam.Pipeline(runner=runner or _local_runner(known), options=options)
  except ValueError as error:
    raise errors.ConfigError(
      f'Beam refuses the options {" ".join(flags)!r}: {error}'
    ) from None


def _parse(flags: Sequence[str]) -> beam_options.PipelineOptions:
  options = beam_options.PipelineOptions(list(flags))
  name = options.view_as(beam_options.StandardOptions).runner or ''
  is_chosen = any('partition' in flag for flag in flags)
  if name.endswith('DaskRunner') and not is_chosen:
    return beam_options.PipelineOptions([*flags, _DASK_PARTITIONS])
  return options


def _local_runner(options: Mapping[str, Any]) -> beam_runner.PipelineRunner:
  # As in apache_beam.runners.direct: workers learn the options this way.
  encoded = portable_runner.JobServiceHandle.encode_pipeline_options(
    dict(options)
  )
  return fn_runner.FnApiRunner(
    provision_info=fn_runner.ExtendedProvisionInfo(
      beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    )
  )
