r"""Builds the federated dataset of an experiment and publishes it.

  python -m binaries.preprocess --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

writes the dataset to <workdir>/dataset, and its card. Running it again with the
same config and raw data gives the same version, and is done at once. Beam's own
options choose the engine:

  --beam_options='--direct_num_workers=4 --direct_running_mode=multi_processing'

For schedulers (docs/data_engineering.md): the last and only line on stdout is
a JSON object that says what was published, or why nothing was; the exit code
is 0, 1 for bad input, 75 for a disk, machine or engine that failed.
"""

import json
import time

from absl import flags, logging

from binaries import command
from pipelines import build_dataset
from pipelines.publishing import versions
from tff_algos.core import errors
from tff_algos.experiments import datasets, experiment


def result_line(
  result: build_dataset.BuildResult, as_of: str | None, seconds: float
) -> str:
  """Returns a JSON object, one line, that says what was published.

  Args:
    result: What the build made.
    as_of: The date that it was made for.
    seconds: How long it took.
  """
  manifest = result.manifest
  counters = manifest['counters']
  return json.dumps(
    {
      'status': 'unchanged' if result.reused else 'built',
      'version': result.version,
      'path': str(result.path),
      'as_of': as_of,
      'is_current': result.is_current,
      'num_clients': manifest['num_clients'],
      'num_examples': {
        split: sum(groups.values())
        for split, groups in manifest['num_examples'].items()
      },
      'raw_examples': counters['raw_examples'],
      'dead_letters': counters['dead_letters'],
      'removed_versions': list(result.removed),
      'seconds': round(seconds, 3),
    }
  )


def failure_line(error: Exception, exit_code: int) -> str:
  """Returns a JSON object, one line, that says why nothing was published.

  Args:
    error: A `UserError`, or an `OSError` of the disk.
    exit_code: The program's.
  """
  is_infrastructure = isinstance(error, (errors.InfrastructureError, OSError))
  return json.dumps(
    {
      'status': 'failed',
      'reason': 'infrastructure' if is_infrastructure else 'bad_input',
      'exit_code': exit_code,
      'error': type(error).__name__,
      'message': str(error),
    }
  )


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  beam_options = flags.DEFINE_string(
    'beam_options',
    '',
    "Apache Beam's own options, in one string, such as "
    "'--direct_num_workers=4 --direct_running_mode=multi_processing'.",
  )
  as_of = flags.DEFINE_string(
    'as_of',
    None,
    'Date (ISO 8601) that the dataset is made for, such as the logical date '
    'of a scheduled run. Readers may ask for it, and the current version is '
    'that of the latest date.',
  )
  force = flags.DEFINE_bool(
    'force', False, 'Build also what is there already, and compare.'
  )
  keep_versions = flags.DEFINE_integer(
    'keep_versions',
    None,
    'Remove the oldest versions but so many; never the current one, nor one '
    'that is in use. By default all stay.',
  )
  with_card = flags.DEFINE_boolean(
    'card', True, 'Whether to measure the dataset and draw its card.'
  )

  def build_and_tell():
    start = time.monotonic()
    try:
      publication = versions.Publication(
        as_of.value, force.value, keep_versions.value
      )
      result = datasets.build(
        experiment.parse(config.value).dataset,
        workdir.value,
        beam_options.value,
        publication,
      )
      if with_card.value:
        path = datasets.write_card(
          workdir.value, beam_options.value, version=result.version
        )
        logging.info('Card: %s', path)
    except (errors.UserError, OSError) as error:
      code = command.exit_code_of(error)
      if code is not None:
        print(failure_line(error, code), flush=True)
      raise
    seconds = time.monotonic() - start
    print(result_line(result, publication.as_of, seconds))

  command.run(build_and_tell)


if __name__ == '__main__':
  _main()
