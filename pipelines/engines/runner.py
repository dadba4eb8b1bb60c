"""Execution of a pipeline on Beam's local runner or the runner of its flags."""

import contextlib
import json
import shlex
import shutil
import signal
import threading
import traceback
import types
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from absl import logging
from apache_beam.options import pipeline_options as beam_options
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import runner as beam_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner

from pipelines.engines import dask_cluster, failures
from tff_algos.core import errors
from tff_algos.stores import objects

_LOCAL = 'DirectRunner'
_OUR_ROOMS = ('binaries', 'pipelines', 'tff_algos')
# Beam accepts this one by its full name only.
_LONG_NAMES = {'DaskRunner': 'apache_beam.runners.dask.dask_runner.DaskRunner'}
# By default Beam makes one partition for 128 blocks, which leaves most workers
# idle. Dask shuffles up to 32 partitions in one stage.
_DASK_PARTITIONS = '--dask_npartitions=32'
_FLAGS_OF_PARTITIONS = ('--dask_npartitions', '--dask_partition_size')
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


def split_flags(text: str) -> list[str]:
  """Returns Beam's pipeline options of one string, as a shell splits it.

  Raises:
    ConfigError: If a quotation mark is not closed.
  """
  try:
    return shlex.split(text)
  except ValueError as error:
    raise errors.ConfigError(
      f"Beam's options cannot be split into words: {error}, got {text!r}"
    ) from None


def check_flags(flags: Sequence[str]) -> None:
  """Checks Beam's pipeline options, without connecting to an engine.

  Args:
    flags: Beam's pipeline options, such as `['--direct_num_workers=2']`.

  Raises:
    ConfigError: If Beam does not accept an option or its value, or Dataflow has
      no address for temporary files.
    UserError: If the extra `stores` is missing for an address.
  """
  # It makes a folder for temporary files, which only a run would remove.
  pipeline = _create_pipeline(flags)
  shutil.rmtree(pipeline.local_tempdir)
  address = find_handover(flags)
  if address is not None:
    objects.Objects(address)
  elif type(pipeline.runner).__name__ == 'DataflowRunner':
    raise errors.ConfigError(
      'DataflowRunner needs --temp_location=gs://bucket/folder: its workers '
      'hand over files there'
    )


def find_handover(flags: Sequence[str]) -> str | None:
  """Returns the address at which workers hand over files, or None.

  It is Beam's `--temp_location`, if that is in an object store. Without it the
  workers must see the folder that is written to.
  """
  options = _parse(flags).view_as(beam_options.GoogleCloudOptions)
  location = str(options.temp_location or '')
  scheme, separator, _ = location.partition('://')
  return location if separator and scheme in objects.SCHEMES else None


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
        if type(pipeline.runner).__name__ == 'DaskRunner':
          dask_cluster.share_project(pipeline.options)
        with _signals_kept(), pipeline:
          yield pipeline
      except (Exception, KeyboardInterrupt) as error:
        raise _find_reason(error, flags, ends) from None
  finally:
    # Dask's runner opens a client for each pipeline and never closes it.
    client = getattr(getattr(pipeline, 'result', None), 'client', None)
    if client is not None:
      client.close()


def spread(elements: Iterable[Any]) -> Any:
  """Returns the transform to a PCollection of elements, over all workers."""
  return beam.Create([*elements]) | beam.Reshuffle()


def _find_reason(
  error: BaseException, flags: Sequence[str], ends: Sequence[str]
) -> BaseException:
  """Returns the error of a step, or of the runner."""
  found = failures.find(error)
  reason = found or error
  if ends and (reason is error or isinstance(reason, KeyboardInterrupt)):
    return errors.InfrastructureError(
      f'a worker process of Beam was lost ({ends[0]}; 137 or -9 is a kill, '
      'often for want of memory). Run this again, with fewer workers or more '
      'dataset.num_shards if memory is short.'
    )
  if isinstance(reason, (ConnectionError, TimeoutError)) or (
    found is None and _is_of_engine(error, flags)
  ):
    logging.debug('The engine failed.', exc_info=error)
    words = f'{type(reason).__name__}: {reason}'.splitlines()[0].rstrip(' .:')
    return errors.InfrastructureError(
      f'the engine of {" ".join(flags)!r} failed: {words}. Check that it is up '
      'and that its workers have memory enough, and run this again.'
    )
  return reason


def _is_of_engine(error: BaseException, flags: Sequence[str]) -> bool:
  """Returns whether an error is the engine's, and not a bug in a step."""
  if type(error).__module__.split('.')[0] in ('distributed', 'grpc'):
    return True
  if _runner_name(_parse(flags)) == _LOCAL:
    return False
  return not _is_in_our_code(error)


def _is_in_our_code(error: BaseException) -> bool:
  """Returns whether an error, or one in its text, passed through our code."""
  if 'Traceback (most recent call last)' in str(error):
    return True  # Of a step, in the words of a worker.
  return any(
    name.partition('.')[0] in _OUR_ROOMS and not name.startswith(__package__)
    for frame, _ in traceback.walk_tb(error.__traceback__)
    for name in [frame.f_globals.get('__name__', '')]
  )


@contextlib.contextmanager
def _signals_kept() -> Generator[None]:
  """Raises Ctrl-C or SIGTERM at the end of the block, if it was lost within.

  Python drops exceptions raised in a destructor or a callback from C, where a
  signal may arrive; the build would then continue to its end.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  handlers: dict[int, Callable[[int, types.FrameType | None], Any]] = {
    signum: handler
    for signum in (signal.SIGINT, signal.SIGTERM)
    if callable(handler := signal.getsignal(signum))
  }
  seen: list[int] = []

  def notice(signum: int, frame: types.FrameType | None) -> None:
    seen.append(signum)
    handlers[signum](signum, frame)

  for signum in handlers:
    signal.signal(signum, notice)
  try:
    yield
  finally:
    for signum, handler in handlers.items():
      signal.signal(signum, handler)
  if seen:
    signal.raise_signal(seen[0])


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
    _check_no_template(options.view_as(beam_options.GoogleCloudOptions))
    # Dataflow would pickle `__main__`; our steps are in modules.
    options.view_as(beam_options.SetupOptions).save_main_session = False
    name = _runner_name(options)
    # Loading a runner also registers its options.
    runner = None
    if name != _LOCAL:
      runner = beam_runner.create_runner(_LONG_NAMES.get(name, name))
    _check_environment(options.view_as(beam_options.PortableOptions))
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


def _check_no_template(options: beam_options.GoogleCloudOptions) -> None:
  """Raises ValueError if Dataflow would keep a job instead of running it."""
  if options.template_location:
    raise ValueError(
      'template_location: a template holds one job, and these programs start '
      'each job with the results of the one before'
    )


def _check_environment(options: beam_options.PortableOptions) -> None:
  """Raises ValueError if the environment of processes is no JSON."""
  if options.environment_type == 'PROCESS' and options.environment_config:
    try:
      json.loads(options.environment_config)
    except ValueError:
      raise ValueError(
        f'environment_config is no JSON object: {options.environment_config}'
      ) from None


def _runner_name(options: beam_options.PipelineOptions) -> str:
  return str(options.view_as(beam_options.StandardOptions).runner or _LOCAL)


def _parse(flags: Sequence[str]) -> beam_options.PipelineOptions:
  options = beam_options.PipelineOptions(list(flags))
  is_chosen = any(flag.startswith(_FLAGS_OF_PARTITIONS) for flag in flags)
  if _runner_name(options).endswith('DaskRunner') and not is_chosen:
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
