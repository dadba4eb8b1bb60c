r"""Measures a federated dataset and draws its card.

  python -m binaries.card --workdir=runs/digits

writes statistics.json, client_statistics.parquet and card.html into the folder
of the current version in <workdir>/dataset; open card.html. What is there
already and still fits is not made again, unless --force is given.
binaries.preprocess does the same after it has built a dataset.
"""

import os
import pathlib
import shlex

from absl import flags, logging

from binaries import command
from pipelines import statistics
from pipelines.publishing import staging as staging_lib
from tff_algos.data import integrity, layout
from tff_algos.reports.dataset import card


def write_card(
  folder: str | os.PathLike[str],
  beam_options: str = '',
  *,
  version: str | None = None,
  force: bool = False,
) -> pathlib.Path:
  """Measures the dataset in `<folder>/dataset`; returns the card.

  Args:
    folder: The workdir.
    beam_options: Beam's own options.
    version: Name of the version; by default the current one.
    force: Whether to make again what is there already.

  Raises:
    UserError: If there is no dataset, or it is damaged or being built.
  """
  dataset = pathlib.Path(folder, 'dataset').resolve()
  place = (
    integrity.find_current(dataset)
    if version is None
    else layout.version_folder(dataset, version)
  )
  with staging_lib.open_staging(dataset) as staging:
    found = statistics.measure(
      staging, place, shlex.split(beam_options), force=force
    )
    path = place / layout.CARD
    if force or not (found.reused and _fits(path)):
      text = card.render(place)
      with staging.atomic_path(path) as temporary:
        temporary.write_text(text, encoding='utf-8')
  return path


def _fits(path: pathlib.Path) -> bool:
  """Returns whether a card was made of the statistics beside it."""
  if not path.exists():
    return False
  sha256 = integrity.file_sha256(path.with_name(layout.STATISTICS))
  return card.signature(sha256) in path.read_text(encoding='utf-8')


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of a run; its dataset is in <workdir>/dataset.'
  )
  flags.mark_flag_as_required('workdir')
  beam_options = flags.DEFINE_string(
    'beam_options', '', "Apache Beam's own options, in one string."
  )
  force = flags.DEFINE_boolean(
    'force', False, 'Whether to make again what is there already.'
  )
  command.run(
    lambda: logging.info(
      'Card: %s',
      write_card(workdir.value, beam_options.value, force=force.value),
    )
  )


if __name__ == '__main__':
  _main()
