"""Lineage of a run and of served versions, back to raw files.

`lineage.json` in a workdir names the raw files and their checksums, the version
and date of the dataset, the parent run, config, code, gate record and released
versions. Each released bundle has a copy in `assets.extra/lineage.json`, so a
private run's has no seed and no scores. Paths are relative, so that a
production folder may be moved.
"""

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import config as config_lib
from tff_algos.core import errors, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import dates
from tff_algos.experiments import experiment, resolved_config
from tff_algos.experiments.production import gate_record
from tff_algos.export import manifest, releases
from tff_algos.reports.run import lineage_table
from tff_algos.training import continuation

# Fields of the gate's record in the lineage of a private run.
_GATE_FACTS = ('blessed', 'champion_version')


def describe(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  dataset: dataset_lib.FederatedDataset,
  round_num: int,
) -> dict[str, Any]:
  """Returns the lineage of a round of a run, without its releases."""
  record = gate_record.read(folder)
  gate = None
  unpublished = experiment.unpublished_hash(config)
  subject = round_num, unpublished, dataset.version
  if record is not None and record.subject == subject:
    gate = config_lib.to_dict(record)
    if config.privacy.is_on:  # The other fields have scores without noise.
      gate = {name: gate[name] for name in _GATE_FACTS}
  return {
    'round_num': round_num,
    'dataset': {
      'version': dataset.version,
      'as_of': _first_date(dataset),
      'raw_files': dict(dataset.manifest['sources']),
    },
    'parent': _parent(folder),
    'config_hash': experiment.config_hash(config),
    'code_version': manifest.code_version(),
    'gate': gate,
    'config': experiment.to_published(config),
  }


def of_release(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str],
  dataset: dataset_lib.FederatedDataset,
  round_num: int,
  *,
  gated: bool,
) -> tuple[releases.Release, dict[str, Any]]:
  """Returns the line of the history for a release, and its lineage.

  The version and the bundles are set by `ExportPath.release`.
  """
  entry = releases.Release(
    version=0,
    bundles={},
    run=_relative(folder, export_dir),
    round_num=round_num,
    config_hash=experiment.config_hash(config),
    dataset_version=dataset.version,
    gated=gated,
  )
  return entry, describe(config, folder, dataset, round_num)


def write(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str],
) -> dict[str, Any]:
  """Writes `lineage.json` of a run; returns its content.

  A function of the files of the run and the history alone.

  Args:
    config: The experiment.
    folder: Its workdir.
    export_dir: Export path, where released versions are looked up.

  Raises:
    DataError: If the dataset or the gate's record is missing.
  """
  record = gate_record.read(folder)
  if record is None:
    raise errors.DataError(
      f'{folder} has no {gate_record.FILE}: run binaries.gate first'
    )
  path = pathlib.Path(folder, 'dataset')
  with dataset_lib.FederatedDataset.open(path, verify=False) as dataset:
    content = describe(config, folder, dataset, record.round_num)
  known = lineage_table.read(pathlib.Path(folder))
  before = known.get('dataset', {})
  if before.get('version') == content['dataset']['version']:
    # A backfill may have named it for another date.
    content['dataset'] = before
  content['run_hash'] = resolved_config.run_hash(folder)
  run, here = _relative(folder, export_dir), _relative(export_dir, folder)
  is_same = all(
    known.get(key) == content[key]
    for key in ('dataset', 'round_num', 'config_hash')
  )
  content['releases'] = [
    one
    for one in known.get('releases', ())
    if is_same and one['export_dir'] != here
  ] + [
    {'export_dir': here, 'version': release.version}
    for release in releases.read_history(export_dir)
    if release.rollback_of is None
    and (release.run, release.round_num) == (run, record.round_num)
    and release.config_hash == content['config_hash']
    and release.dataset_version == content['dataset']['version']
  ]
  sealed_json.write(pathlib.Path(folder, lineage_table.FILE), content)
  return content


def has_release(
  folder: str | os.PathLike[str],
  export_dir: str | os.PathLike[str],
  version: int,
) -> bool:
  """Returns whether `lineage.json` of a run names a released version."""
  named = {'export_dir': _relative(export_dir, folder), 'version': version}
  return named in lineage_table.read(pathlib.Path(folder)).get('releases', ())


def chain(
  export_dir: str | os.PathLike[str], version: int | None = None
) -> list[tuple[str, Mapping[str, Any]]]:
  """Returns the way from a served version back to the first run.

  Args:
    export_dir: Export path.
    version: Version; None for the current one.

  Returns:
    (title, facts) of the version, of the version that it rolled back to if it
    is a rollback, of its run, and of that run's parents.

  Raises:
    ExportError: If there is no such version in the history.
    DataError: If a lineage is damaged, or of an older version of this library.
  """
  folder = pathlib.Path(export_dir)
  history = {one.version: one for one in releases.read_history(folder)}
  if version is None and history:
    version = max(history)
  if version not in history:
    known = ', '.join(map(str, history)) or 'none'
    raise errors.ExportError(
      f'{folder} has no release with version {version}; its releases are '
      f'{known}'
    )
  release = history[version]
  steps: list[tuple[str, Mapping[str, Any]]] = []
  if release.rollback_of is not None:
    steps.append(
      (f'version {version}', {'rollback to version': release.rollback_of})
    )
    release = history[release.rollback_of]
  run = folder / release.run
  round_num = release.round_num
  try:
    found = (
      releases.read_lineage(folder, release.version)
      or releases.read_lineage(folder, version)
      or _read_of(run, release.dataset_version)
    )
    gate = found.get('gate') or {}
    steps.append(
      (
        f'version {release.version}',
        {
          'gate': 'not asked'
          if not release.gated
          else lineage_table.blessing(gate.get('champion_version')),
          **release.bundles,
        },
      )
    )
    while True:
      facts = lineage_table.describe(found) if found else {}
      facts['round'] = str(round_num)
      if not found:
        facts['lineage'] = f'{lineage_table.FILE} is not there any more'
      steps.append((f'run {os.path.normpath(run)}', facts))
      parent = found.get('parent')
      if not parent:
        return steps
      found = _read_of(run / parent['run'], parent['dataset_version'])
      run, round_num = run / parent['run'], parent['round_num']
  except (KeyError, TypeError, AttributeError) as error:
    raise errors.DataError(
      f'the lineage of {os.path.normpath(run)} cannot be read: {error!r} in '
      f'{lineage_table.FILE} of the run, or of its child or bundle. It is '
      'damaged, or of an older version of this library.'
    ) from None


def chain_text(steps: list[tuple[str, Mapping[str, Any]]]) -> str:
  """Returns a chain as indented text."""
  lines = []
  for title, facts in steps:
    lines.append(title)
    lines += [f'  {name}: {value}' for name, value in facts.items()]
  return '\n'.join(lines)


def _read_of(run: pathlib.Path, dataset_version: str) -> dict[str, Any]:
  """Returns the lineage of a run; empty if it was done anew on other data."""
  found = lineage_table.read(run)
  if found and found['dataset']['version'] != dataset_version:
    return {}
  return found


def _first_date(dataset: dataset_lib.FederatedDataset) -> str | None:
  """Returns the first date that the version was published for."""
  root = dataset.path.parent.parent
  for date in dates.recorded(root):
    with contextlib.suppress(errors.DataError):  # Of another, damaged record.
      if dates.version_of(root, date) == dataset.version:
        return date
  return None


def _parent(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
  """Returns the run that a training goes on from; None if it does not."""
  parent = continuation.read_parent(folder)
  if parent is None:
    return None
  return {
    'run': parent.workdir,
    'round_num': parent.round_num,
    'dataset_version': parent.dataset_version,
  }


def _relative(
  path: str | os.PathLike[str], start: str | os.PathLike[str]
) -> str:
  return os.path.relpath(
    pathlib.Path(path).resolve(), pathlib.Path(start).resolve()
  )
