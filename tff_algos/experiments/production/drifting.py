"""Drift report: data and clusters of a run against those of its parent run.

Statistics of a run's dataset are kept in `<run>/drift_reference/<version>`, so
that the data of a child can be compared with them after retention has removed
the version. What needs the parent's examples (its clients' losses) is then
reported as missing.
"""

import os
import pathlib
import shutil
from typing import Any

from pipelines import statistics
from pipelines.publishing import staging as staging_lib
from tff_algos.core import durable, errors, records, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import integrity, layout, schema
from tff_algos.data import statistics as statistics_lib
from tff_algos.evaluation import cluster_losses, drift
from tff_algos.experiments import (
  experiment,
  resolved_config,
  session,
  tables,
)
from tff_algos.runtimes import client_sources
from tff_algos.training import checkpoint

_REFERENCE = 'drift_reference'
_REFERENCE_FILES = (
  layout.MANIFEST,
  layout.STATISTICS,
  layout.CLIENT_STATISTICS,
)


def measure(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  parent_folder: str | os.PathLike[str] | None,
) -> dict[str, Any]:
  """Measures the drift of a run's dataset from that of its parent run.

  Writes `drift.json`, `drift_clients.csv` (one row a client) and the reference
  of the next run. The same data and models give the same bytes.

  Args:
    config: The experiment; `config.drift` has the thresholds, and
      `config.continuation.round` the checkpoint of the parent's models.
    folder: Workdir of the run, with its dataset.
    parent_folder: Workdir of the parent, trained; None or empty for that of
      `config.continuation`. Without any only the reference is written.

  Returns:
    The content of `drift.json`; empty without a parent.

  Raises:
    UserError: If a dataset or the parent's checkpoint cannot be read, or the
      examples of both differ in shape or meaning.
  """
  folder = pathlib.Path(folder)
  with experiment.open_dataset(folder) as dataset:
    now = _measure_statistics(dataset)
    _keep_reference(folder, dataset.path)
    parent_folder = parent_folder or config.continuation.parent
    if not parent_folder:
      return {}
    parent = pathlib.Path(parent_folder)
    round_choice = checkpoint.parse_choice(config.continuation.round)
    before = _statistics_of_parent(parent, round_choice)
    of_data = drift.of_data(now, before)
    chosen, of_clusters = _compare_clusters(
      config, parent, round_choice, dataset
    )
  measures = of_data.measures | of_clusters.measures
  missing = of_data.missing | of_clusters.missing
  report = {
    'parent': parent.resolve().name,
    'parent_round': chosen,
    'dataset_version': now.manifest['version'],
    'parent_dataset_version': before.manifest['version'],
    'measures': measures,
    'missing': missing,
    'thresholds': config.drift.thresholds(),
    'exceeded': drift.exceeded(measures, missing, config.drift),
    'far_quantile': config.drift.far_quantile,
    **of_data.details,
    **of_clusters.details,
  }
  rows = [
    {'client_id': client_id, **row, **of_clusters.clients.get(client_id, {})}
    for client_id, row in of_data.clients.items()
  ]
  for name in (drift.CLIENTS, drift.REPORT):
    durable.check_file_place(folder / name)
  # The report of before, which is not of the table that is written first.
  (folder / drift.REPORT).unlink(missing_ok=True)
  durable.sync(folder)
  tables.write_table(folder / drift.CLIENTS, rows)
  report['files'] = {
    drift.CLIENTS: records.describe_file(folder / drift.CLIENTS)
  }
  sealed_json.write(folder / drift.REPORT, report)
  return report


def require_accepted(
  report: dict[str, Any],
  folder: str | os.PathLike[str],
  remedy: str = 'mend the raw data and build the dataset anew',
) -> None:
  """Raises NotApprovedError if a measure exceeds its threshold.

  Args:
    report: That of `measure`; accepted if it is empty.
    folder: Workdir of the run, which has it.
    remedy: What to do with bad data.
  """
  if failures := report.get('exceeded'):
    raise errors.NotApprovedError(
      f'the data drifted from those of {report["parent"]}: '
      f'{"; ".join(failures)}. Look at {pathlib.Path(folder, drift.REPORT)}; '
      f'then {remedy}, or raise the threshold to train on them'
    )


def summarize(report: dict[str, Any]) -> str:
  """Returns a report of `measure` as text, one line a measure."""
  lines = []
  for measure, value in report['measures'].items():
    limit = report['thresholds'][measure]
    text = report['missing'].get(measure) if value is None else f'{value:.4g}'
    bound = '' if limit is None else f'  (at most {limit:g})'
    lines.append(f'{measure:<22}{text}{bound}')
  counts = report['num_clients']
  lines.append(
    'clients: ' + ', '.join(f'{count} {name}' for name, count in counts.items())
  )
  return '\n'.join(lines)


def _measure_statistics(
  dataset: dataset_lib.FederatedDataset,
) -> drift.Snapshot:
  """Returns the statistics of a version, measured if they are not there."""
  try:
    return _read(dataset.path)
  except errors.DataError:
    if dataset.address is not None:  # Here is a copy without examples.
      raise errors.DataError(
        f'the dataset at {dataset.address} has no sound statistics: make them '
        f'with binaries.card --workdir={dataset.address}'
      ) from None
    place = dataset.path.resolve()
    with staging_lib.open_staging(place.parents[1]) as staging:
      statistics.measure(staging, place)
    return _read(place)


def _read(place: pathlib.Path) -> drift.Snapshot:
  manifest = integrity.read_manifest(place)
  return drift.Snapshot(manifest, statistics_lib.read(place, manifest))


def _keep_reference(folder: pathlib.Path, version: pathlib.Path) -> None:
  """Copies the statistics of a version into a run, in place of older ones."""
  place = folder / _REFERENCE / version.name
  durable.make_folder(place.parent)
  made = place.with_name(f'.writing-{version.name}')
  shutil.rmtree(made, ignore_errors=True)
  if not place.exists():
    made.mkdir()
    try:
      for name in _REFERENCE_FILES:
        shutil.copyfile(version / name, made / name)
      durable.publish(made, place)
    finally:
      shutil.rmtree(made, ignore_errors=True)
  for other in place.parent.iterdir():
    if other != place and other.is_dir():  # Files there are not ours.
      shutil.rmtree(other)


def _statistics_of_parent(
  parent: pathlib.Path, round_choice: int | str
) -> drift.Snapshot:
  """Returns the statistics of the dataset that the parent was trained on."""
  manager = checkpoint.reader(parent)
  identity = manager.identity(manager.find(round_choice))
  place = parent / _REFERENCE / identity['dataset_version']
  if place.exists() and not (parent / 'dataset').exists():
    return _read(place)
  # If it is of another version, the parent's models are not restored with it.
  with experiment.open_dataset(parent) as dataset:
    return _measure_statistics(dataset)


def _compare_clusters(
  config: experiment.ExperimentConfig,
  parent: pathlib.Path,
  round_choice: int | str,
  dataset: dataset_lib.FederatedDataset,
) -> tuple[int | None, drift.Drift]:
  """Returns the round of the parent's models, and the drift from them."""
  if not (parent / 'dataset').exists():
    return None, drift.no_clusters(
      "the parent's dataset version was removed, and its models are restored "
      'with it'
    )
  # The parent may have run on another machine, or have runtime options of an
  # earlier version.
  theirs = resolved_config.read(parent, config.runtime)
  with session.open_session(theirs, parent) as opened:
    chosen, server_state = opened.restore(round_choice)
    now, before = (
      drift.ClusterLosses(
        source.population.client_ids,
        cluster_losses.of_clients(
          opened.algorithm,
          opened.runtime,
          server_state,
          source,
          source.population.all_clients,
        ),
        source.population.num_examples > 0,
      )
      for source in (
        client_sources.DatasetSource(dataset, schema.TRAIN),
        opened.source,
      )
    )
  return chosen, drift.of_clusters(now, before, config.drift.far_quantile)
