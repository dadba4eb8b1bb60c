r"""Builds and publishes the federated dataset of an experiment (Apache Beam).

  python -m binaries.preprocess --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

writes the dataset to <workdir>/dataset, and its dataset card. It is idempotent:
the same config and raw data give the same version, which is not built again.
Beam's pipeline options select the runner:

  --beam_options='--direct_num_workers=4 --direct_running_mode=multi_processing'

For schedulers (docs/data_engineering.md): the last and only line on stdout is
a JSON object with the published version, or the error; the exit code is 0, 1
for bad input, 75 for a failure of the disk, the machine or the runner.
"""

import json
import time
from typing import TYPE_CHECKING

from absl import flags, logging

from binaries import command, mirrored_flags
from tff_algos.core import errors

if TYPE_CHECKING:
  from pipelines import build_dataset


def result_line(
  result: 'build_dataset.BuildResult', as_of: str | None, seconds: float
) -> str:
  """Returns the result of a build as one line of JSON.

  Args:
    result: The result of the build.
    as_of: The logical date of the build.
    seconds: Duration of the build.
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


def _write_card(workdir: str, beam_options: str, version: str) -> None:
  """Writes the card of a published version, which stays without one."""
  from tff_algos.experiments import datasets

  try:
    path = datasets.write_card(workdir, beam_options, version=version)
  except (errors.UserError, OSError) as error:
    logging.error('No card: %s. binaries.card writes it.', error)
  else:
    logging.info('Card: %s', path)


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  beam_options = command.define_beam_options_flag()
  as_of = flags.DEFINE_string(
    'as_of',
    None,
    'Date (ISO 8601) of the dataset, such as the logical date of a scheduled '
    'run. Readers may select a version by it; the version of the latest date '
    'is the current one.',
  )
  force = flags.DEFINE_bool(
    'force', False, 'Rebuild an existing version, and compare the two.'
  )
  keep_versions = flags.DEFINE_integer(
    'keep_versions',
    None,
    'Retention: versions to keep when the oldest are removed. The current one '
    'and those in use are never removed. Default: keep all.',
  )
  with_card = flags.DEFINE_boolean(
    'card', True, 'Whether to compute statistics and write the dataset card.'
  )

  def build_and_tell():
    from pipelines.publishing import versions
    from tff_algos.experiments import datasets, experiment

    start = time.monotonic()
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
      _write_card(workdir.value, beam_options.value, result.version)
    mirrored_flags.publish()  # What is told below is there for others.
    seconds = time.monotonic() - start
    print(result_line(result, publication.as_of, seconds))

  command.run(build_and_tell, prints_failures=True)


if __name__ == '__main__':
  _main()
