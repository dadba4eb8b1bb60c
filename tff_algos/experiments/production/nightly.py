"""One night of production: from the day's raw data to the released models.

    <folder>/dataset/          all dataset versions; one per date with new data
    <folder>/runs/<date>/      the run of a date, an ordinary workdir; its
                               `dataset` is a link to the version of that date
    <folder>/export/           the export path of all runs

A night continues the run whose models are current: the last one released, or
the one that was rolled back to. A run that was refused is continued by none.
Every step finds what is done already, so that a night that was interrupted at
any point may be started again, and then ends in the same files.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from absl import logging

from pipelines import options as dataset_options
from pipelines.partitions import registry as laws
from pipelines.publishing import versions
from tff_algos.core import checks, durable, errors
from tff_algos.data import dates, integrity, layout, raw_features, schema
from tff_algos.evaluation import drift
from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  runtime_cache,
  training,
)
from tff_algos.experiments.production import (
  drifting,
  gate_record,
  gating,
  lineage,
  releasing,
)
from tff_algos.export import releases
from tff_algos.reports.run import page
from tff_algos.training import checkpoint, continuation, workdir

DATASET, DRIFT, TRAIN, GATE, RELEASE = STEPS = (
  'dataset',
  'drift',
  'train',
  'gate',
  'release',
)
RUNS = 'runs'
EXPORT = 'export'


class Options(NamedTuple):
  """How a night is run.

  Attributes:
    until: The last of `STEPS` to do.
    round_choice: Checkpoint that is evaluated, gated and released, as of
      `CheckpointManager.find`.
    beam_options: Options of Apache Beam, as on a command line.
    keep_versions: Number of dataset versions, and of exported ones, to keep,
      >= 2; None for all.
  """

  until: str = RELEASE
  round_choice: int | str = checkpoint.LAST
  beam_options: str = ''
  keep_versions: int | None = None


def run(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  as_of: str,
  options: Options = Options(),
) -> dict[str, Any]:
  """Runs the night of a date, or what is left of it.

  Args:
    config: The experiment; `training.num_rounds` are the rounds of one night.
    folder: Production folder, made if missing.
    as_of: The date, see `dates.parse`.
    options: See `Options`.

  Returns:
    What was done, JSON-ready: `status`, `as_of`, `run` (None if it was not
    made), `parent`, `dataset_version`, `released_version` (of this night) and
    `current_version` (the one that is served). The status is `'released'`;
    `'no_new_data'` if the dataset is that of the parent; `'backfilled'` if
    models of a later date are current, so that these stay; or, with
    `options.until`, `'until <step>'`.

  Raises:
    ConfigError: If `as_of` or an option is invalid, the date is before the
      first night, or the dataset's options test nights on what earlier ones
      were trained on.
    NotApprovedError: If the drift exceeds a threshold, the gate refuses the
      candidate, or the parent was rolled back or done anew on other data since;
      the served models stay.
    WorkdirBusyError: If another night is running in the folder.
    UserError: If a step is refused for another reason.
  """
  date = dates.parse(as_of)
  _check_dataset(config.dataset)
  checks.check_one_of('until', options.until, STEPS)
  if options.keep_versions is not None:
    checks.check_int(
      'keep_versions',
      options.keep_versions,
      minimum=releases.MIN_KEPT_VERSIONS,
    )
  folder = pathlib.Path(folder)
  durable.make_folder(folder)
  with workdir.lock(folder):
    return _Night(config, folder, date, options).run()


def _check_dataset(config: dataset_options.DatasetConfig) -> None:
  """Raises ConfigError if a night would be tested on what others trained on."""
  split_by = config.splits.split_by
  if split_by in (dataset_options.CLIENT, dataset_options.TIME):
    raise errors.ConfigError(
      f'config.dataset.splits.split_by={split_by!r} moves examples from '
      'training to test as rows come or go, so later nights may be tested on '
      f"what earlier ones were trained on. Take '{dataset_options.CONTENT}', "
      f"'{dataset_options.GROUP}', or '{dataset_options.CLIENT_TIME}' with "
      'held_out_fraction=0.0'
    )
  partition = config.partition
  if partition.law == laws.NATURAL and partition.num_unseen_clients:
    raise errors.ConfigError(
      f'config.dataset.partition.num_unseen_clients='
      f'{partition.num_unseen_clients} takes other clients as clients come and '
      'go, so unseen clients would be those that earlier nights were trained '
      "on. Take config.dataset.partition.options={'unseen_fraction': 0.1} or "
      'another share, by which a client stays unseen'
    )


class _Night:
  """The night of one date.

  Attributes:
    result: As of `run`.
  """

  def __init__(
    self,
    config: experiment.ExperimentConfig,
    folder: pathlib.Path,
    date: str,
    options: Options,
  ):
    self._config = config
    self._folder = folder
    self._date = date
    self._options = options
    self._export = folder / EXPORT
    self._run = folder / RUNS / date
    releases.repair(self._export)
    self._history = releases.read_history(self._export)
    self._parent = self._find_parent()
    self.result: dict[str, Any] = {
      'status': '',
      'as_of': date,
      'run': f'{RUNS}/{date}',
      'parent': self._parent and f'{RUNS}/{self._parent.name}',
      'dataset_version': None,
      'released_version': None,
      'current_version': gating.current_version(self._export),
    }

  def run(self) -> dict[str, Any]:
    """Runs the steps; returns the result."""
    steps = {
      DATASET: self._build_dataset,
      DRIFT: self._measure_drift,
      TRAIN: self._train,
      GATE: self._gate,
      RELEASE: self._release,
    }
    for step, do in steps.items():
      logging.info('%s: %s', self._date, step)
      do()
      if self.result['status']:
        return self.result
      if step == self._options.until:
        break
    self.result['status'] = f'until {self._options.until}'
    return self.result

  def _find_parent(self) -> pathlib.Path | None:
    """Returns the run that the night continues; None in the first night.

    The first night may be done anew, as any other.

    Raises:
      ConfigError: If all released runs are of later dates.
      DataError: If it, or its dataset version, was removed.
    """
    known = continuation.read_parent(self._run)
    if known is not None:
      return continuation.parent_folder(self._run, known)
    if (self._run / checkpoint.FOLDER).exists() or not self._history:
      return None
    nights = self._served_nights()
    earlier = [name for name in nights if name < self._date]
    if not nights or self._date == min(nights):
      return None
    if not earlier:
      raise errors.ConfigError(
        f'--as_of={self._date} is before {min(nights)}, the first night of '
        f'{self._folder}: there is no earlier run to continue. Take a later '
        'date, or another --workdir'
      )
    parent = self._folder / RUNS / earlier[-1]
    if not (parent / 'dataset').exists():
      raise errors.DataError(
        f'{parent}, which made the current models, is gone, or its dataset '
        'version is: the night cannot continue it. Put it back, do '
        f'--as_of={parent.name} anew, or release another version first by '
        'binaries.rollback'
      )
    return parent

  def _served_nights(self) -> dict[str, str]:
    """Returns date -> dataset version of all models that were current.

    The last ones last, and without those that other programs made.
    """
    entries = {entry.version: entry for entry in self._history}
    folder = self._run.parent.resolve()
    nights: dict[str, str] = {}
    for origin in (entries[entry.origin] for entry in self._history):
      run = self._run_of(origin)
      if run.parent == folder and dates.is_date(run.name):
        nights.pop(run.name, None)
        nights[run.name] = origin.dataset_version
    return nights

  def _run_of(self, entry: releases.Release) -> pathlib.Path:
    """Returns the run of a release, in a folder without symbolic links."""
    run = self._export.resolve() / entry.run
    return run.parent.resolve() / run.name

  def _build_dataset(self) -> None:
    """Builds the date's dataset and links the run to it, unless it is linked.

    A linked run keeps its version: raw files that arrive later are part of the
    next night.

    Raises:
      DataError: If no client can train, or examples are encoded otherwise than
        the parent's; if the version was removed since, and the night not
        released; or if a folder, or nothing, is in the place of a run's link.
    """
    link = _link_of(self._run)
    if link.is_symlink() and not link.exists():
      self._end_without_dataset()
      return
    if not link.is_symlink():
      result = datasets.build(
        self._dataset_config(),
        self._folder,
        self._options.beam_options,
        versions.Publication(
          self._date,
          keep_versions=self._options.keep_versions,
          needed=self._continued_versions(),
        ),
      )
      if not result.manifest['num_clients'][schema.PARTICIPATING]:
        raise errors.DataError(
          f'no client of {self._date} has a labelled example to train with; '
          'start the same night again when the labels are there'
        )
      datasets.write_card(
        self._folder, self._options.beam_options, version=result.version
      )
      if self._is_known(result.version):
        self.result |= {
          'status': 'no_new_data',
          'run': None,
          'dataset_version': result.version,
        }
        return
      self._check_comparable(result.manifest)
      durable.make_folder(self._run)
      root = self._folder.resolve() / 'dataset'
      target = layout.version_folder(root, result.version)
      link.symlink_to(os.path.relpath(target, self._run.resolve()))
      durable.sync(self._run)
    self.result['dataset_version'] = _version_of(self._run)

  def _end_without_dataset(self) -> None:
    """Ends the night as released, by the history.

    Raises:
      DataError: If it was not released.
    """
    version = _version_of(self._run)
    run = self._run.parent.resolve() / self._date
    released = [
      entry.version
      for entry in self._history
      if entry.rollback_of is None
      and (self._run_of(entry), entry.dataset_version) == (run, version)
    ]
    if not released:
      raise errors.DataError(
        f'{self._run} cannot be gone on with: retention has removed its '
        f'dataset version {version}. Remove the folder to do the night anew on '
        'the raw files of today'
      )
    self.result |= {
      'status': 'released',
      'dataset_version': version,
      'released_version': released[-1],
    }

  def _continued_versions(self) -> set[str]:
    """Returns the dataset versions of runs that this or later nights continue.

    Later ones, also after a rollback to any version that is on the disk.
    """
    served = self._export / releases.MODELS[0]
    found = {
      entry.dataset_version
      for entry in self._history
      if (served / str(entry.version)).exists()
    }
    if self._parent is not None:
      found.add(_version_of(self._parent))
    return found

  def _dataset_config(self) -> dataset_options.DatasetConfig:
    """Returns the config of the dataset, with the parent's fitted values.

    Fitted anew, the inputs of the same raw data would differ from night to
    night, and no model could be continued or compared.
    """
    config = self._config.dataset
    if self._parent is None or config.fitted_from:
      return config
    parent = _link_of(self._parent)
    if raw_features.FEATURES not in integrity.read_manifest(parent.resolve()):
      return config  # Its source has no columns to be fitted.
    return dataclasses.replace(config, fitted_from=os.fspath(parent))

  def _is_known(self, version: str) -> bool:
    """Returns whether the parent was trained on the data of a version."""
    if self._parent is None:
      return False
    known = _version_of(self._parent)
    folder = self._folder / 'dataset'
    return known == version or _content(folder, known) == _content(
      folder, version
    )

  def _check_comparable(self, manifest: Mapping[str, Any]) -> None:
    """Raises DataError if the parent cannot be trained on a version.

    Before the run is linked to it, so that mended raw files give the same night
    another one.
    """
    if self._parent is None:
      return
    parent = (self._parent / 'dataset').resolve()
    try:
      drift.check_comparable(manifest, integrity.read_manifest(parent))
    except errors.DataError as error:
      raise errors.DataError(
        f'{self._run.name} cannot continue {self._parent}: {error} In a night: '
        'mend the raw files and start the date again; if the change is meant, '
        'begin a new production folder'
      ) from None

  def _measure_drift(self) -> None:
    """Compares data and clusters with the parent's, before training.

    Raises:
      NotApprovedError: If they drifted too far.
    """
    if not (self._run / checkpoint.FOLDER).exists():
      report = drifting.measure(self._config, self._run, self._parent)
      drifting.require_accepted(report, self._run, self._remedy)

  @property
  def _remedy(self) -> str:
    """Returns what to do with bad data: the run keeps its dataset version."""
    return f'mend the raw files, remove {self._run} and start the date again'

  def _train(self) -> None:
    """Trains and evaluates."""
    with runtime_cache.KeptRuntime() as kept:
      training.train(
        self._config, self._run, kept=kept, parent=self._parent or ''
      )
      evaluating.evaluate(
        self._config, self._run, self._options.round_choice, kept=kept
      )

  def _gate(self) -> None:
    """Compares the candidate with the current models, unless they are later.

    Raises:
      NotApprovedError: If the candidate is refused.
    """
    self._check_parent()
    if self._is_backfill():
      self.result['status'] = 'backfilled'
      page.write_report(self._run)
      return
    record = gating.gate(
      self._config, self._run, self._export, self._options.round_choice
    )
    if not record.blessed:  # Else it is written after the release, at its end.
      lineage.write(self._config, self._run, self._export)
    evaluating.write_report(self._config, self._run)
    gate_record.require_blessed(
      record,
      'After a false alarm raise the threshold and start the date again; after '
      f'bad data {self._remedy}',
    )

  def _is_backfill(self) -> bool:
    """Returns whether models of a later date would be replaced."""
    nights = [*self._served_nights()]
    if not nights or nights[-1] <= self._date:
      return False
    return not self._is_released()

  def _is_released(self) -> bool:
    return gating.is_released(
      self._config, self._run, self._export, self._options.round_choice
    )

  def _check_parent(self) -> None:
    """Raises NotApprovedError if the parent was rolled back or done anew since.

    The models would be what the rollback was to end, trained on. Nothing is
    wrong if the night was released before, or the parent was replaced by a
    later one.
    """
    self._history = releases.read_history(self._export)
    nights = self._served_nights()
    earlier = [date for date in nights if date < self._date]
    known = continuation.read_parent(self._run)
    parent = known and pathlib.Path(known.workdir).name
    if known is None or parent not in earlier:
      return
    found = ''
    if nights[parent] != known.dataset_version:
      found = 'was done anew on other data since'
    elif earlier[-1] < parent:
      found = (
        f'was rolled back: the current models are those of {RUNS}/{earlier[-1]}'
      )
    if not found or self._is_released():
      return
    raise errors.NotApprovedError(
      f'{RUNS}/{self._date} continues {RUNS}/{parent}, which {found}. Remove '
      f'{self._run} and start the date again'
    )

  def _release(self) -> None:
    """Publishes the candidate.

    Raises:
      NotApprovedError: If the parent was rolled back or done anew during the
        gate.
    """
    self._check_parent()
    found = releasing.release(
      self._config,
      self._run,
      self._export,
      keep_versions=self._options.keep_versions,
    )
    page.write_report(self._run)
    self.result |= {
      'status': 'released',
      'released_version': found.version,
      'current_version': gating.current_version(self._export),
    }


def _version_of(run: pathlib.Path) -> str:
  """Returns the dataset version of a run."""
  return _link_of(run).readlink().name


def _link_of(run: pathlib.Path) -> pathlib.Path:
  """Returns the link of a run to its dataset version, there or not.

  Raises:
    DataError: If it is a folder, as of a copy that followed links, or missing
      from a trained run, as of a copy without links.
  """
  link = run / 'dataset'
  is_made = link.exists() or (run / checkpoint.FOLDER).exists()
  if is_made and not link.is_symlink():
    raise errors.DataError(
      f'{link} is missing, or no link to a version in dataset/versions, as a '
      'night makes it. Copy production folders with their links (cp -a), or '
      'put the link back'
    )
  return link


def _content(dataset: pathlib.Path, version: str) -> dict[str, Any] | str:
  """Returns what determines the examples of a dataset version.

  Fitted values are compared themselves, whether they were fitted on the raw
  data or taken over. Without them, it is the version.
  """
  folder = layout.version_folder(dataset, version)
  if not folder.exists():  # Removed by retention.
    return version
  manifest = integrity.read_manifest(folder)
  if raw_features.FEATURES not in manifest:
    return version
  recipe = {**manifest['recipe'], 'fitted_from': ''}
  names = ('sources', 'schema_version', 'code_version', raw_features.FEATURES)
  return {'recipe': recipe, **{name: manifest[name] for name in names}}
