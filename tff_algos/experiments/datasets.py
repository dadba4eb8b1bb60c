"""Builds the federated dataset of an experiment, and its dataset card."""

import os
import pathlib

from absl import logging

from pipelines import build_dataset, options, statistics
from pipelines.engines import runner
from pipelines.publishing import staging as staging_lib
from pipelines.publishing import versions
from tff_algos.core import errors, records
from tff_algos.data import integrity, layout
from tff_algos.reports.dataset import card


def build(
  config: options.DatasetConfig,
  folder: str | os.PathLike[str],
  beam_options: str = '',
  publication: versions.Publication = versions.Publication(),
) -> build_dataset.BuildResult:
  """Builds a dataset in `<folder>/dataset` and publishes it.

  The same config and raw data give the same version, which is not built twice.

  Args:
    config: Of the dataset.
    folder: The workdir.
    beam_options: Options of Apache Beam, as on a command line.
    publication: Date, rebuild and retention of versions.

  Raises:
    UserError: If the raw data, the partition or the disk does not allow it, or
      the workdir is the run of a night, which is linked to its version; a
      version that was published before stays.
  """
  dataset = _local_dataset(folder)
  has_lost_its_version = dataset.is_symlink() and not dataset.exists()
  if _is_version(dataset) or has_lost_its_version:
    raise errors.ConfigError(
      f'{dataset} is for one version, as the run of a night is linked to one: '
      'none is built there. Take another --workdir; binaries.train, evaluate '
      'and export read it there'
    )
  result = build_dataset.build(
    config,
    dataset,
    runner.split_flags(beam_options),
    publication,
  )
  logging.info('%s', build_dataset.summarize(result))
  return result


def write_card(
  folder: str | os.PathLike[str],
  beam_options: str = '',
  *,
  version: str | None = None,
  force: bool = False,
) -> pathlib.Path:
  """Measures the dataset in `<folder>/dataset`; returns the path of its card.

  Args:
    folder: The workdir.
    beam_options: Options of Apache Beam, as on a command line. An engine whose
      workers hand over in a store does not see the dataset; it is measured here
      then.
    version: Name of the version; by default the current one.
    force: Whether to replace statistics and a card that are up to date.

  Raises:
    UserError: If there is no dataset here, or it is damaged or being built.
  """
  dataset = _local_dataset(folder).resolve()
  if _is_version(dataset) and dataset.parent.name == layout.VERSIONS:
    dataset, version = dataset.parents[1], version or dataset.name
  place = integrity.find(dataset, None, version)
  flags = runner.split_flags(beam_options)
  if runner.find_handover(flags) is not None:
    flags = []
  with staging_lib.open_staging(dataset) as staging:
    is_measured = statistics.measure(staging, place, flags, force=force)
    path = place / layout.CARD
    if force or not (is_measured and _fits(path)):
      text = card.render(place)
      with staging.atomic_path(path) as temporary:
        temporary.write_text(text, encoding='utf-8')
  return path


def _local_dataset(folder: str | os.PathLike[str]) -> pathlib.Path:
  """Returns the dataset's folder in a workdir.

  Raises:
    ConfigError: If the workdir refers to one in an object store.
  """
  path = pathlib.Path(folder, 'dataset')
  address = layout.read_address(path)
  if address is not None:
    raise errors.ConfigError(
      f'the dataset of {folder} is at {address}: binaries.preprocess and '
      f'binaries.card take --workdir={address}; binaries.train, evaluate and '
      'export read it there'
    )
  return path


def _is_version(dataset: pathlib.Path) -> bool:
  """Returns whether a folder is one version, as in the run of a night."""
  return (dataset / layout.MANIFEST).is_file()


def _fits(path: pathlib.Path) -> bool:
  """Returns whether a card was made of the statistics beside it."""
  if not path.exists():
    return False
  sha256 = records.file_sha256(path.with_name(layout.STATISTICS))
  return card.signature(sha256) in path.read_text(encoding='utf-8')
