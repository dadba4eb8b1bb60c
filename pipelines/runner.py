"""Where a pipeline runs: Beam's local runner, or what Beam's flags name."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options import pipeline_options as beam_options
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner

from tff_algos.core import errors

_LOCAL = (None, 'DirectRunner')


@contextlib.contextmanager
def run_pipeline(flags: Sequence[str]) -> Iterator[beam.Pipeline]:
  """Gives an empty pipeline, and runs it when the block ends.

  Without a runner, and for `DirectRunner`, it is Beam's runner in Python.
  Beam's own `DirectRunner` would first try to fetch and start a program from
  the internet (Prism), and only then fall back to this one.

  Args:
    flags: Beam's flags, such as `['--direct_num_workers=2']`.

  Raises:
    ConfigError: If Beam does not know a flag or its value.
    UserError: What a step raised, where Beam lets it through.
  """
  try:
    with _create_pipeline(flags) as pipeline:
      yield pipeline
  except Exception as error:
    raise _find_reason(error) from None


def _find_reason(error: BaseException) -> BaseException:
  """Returns what a step has raised; Beam wraps it, Ctrl-C not excepted."""
  reason = error
  link: BaseException | None = error
  while link is not None:
    if isinstance(link, (errors.UserError, OSError, KeyboardInterrupt)):
      reason = link
    link = link.__cause__ or link.__context__
  return reason


def _create_pipeline(flags: Sequence[str]) -> beam.Pipeline:
  try:
    options = beam_options.PipelineOptions(list(flags))
    name = options.view_as(beam_options.StandardOptions).runner
    # Loading a runner also adds the options that are its own.
    runner = None if name in _LOCAL else beam.runners.create_runner(name)
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
  return beam.Pipeline(runner=runner or _local_runner(known), options=options)


def _local_runner(options: Mapping[str, Any]) -> beam.runners.PipelineRunner:
  # As in apache_beam.runners.direct: workers learn the options this way.
  encoded = portable_runner.JobServiceHandle.encode_pipeline_options(options)
  return fn_runner.FnApiRunner(
    provision_info=fn_runner.ExtendedProvisionInfo(
      beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    )
  )
