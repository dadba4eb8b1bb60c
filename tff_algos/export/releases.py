"""Releases of an export path: versions, history, rollback and retention.

  <export_dir>/cluster_models/<version>/
  <export_dir>/personalized_models/<version>/
  <export_dir>/releases.jsonl

Both models of a release have one version number, and a number is never used
again. Servers take the largest number, as TensorFlow Serving does by default;
a rollback therefore publishes the content of an older version once more, under
the next number.

Bundles are written to hidden folders, then the release is added to the history,
then the folders get their names. A process that is killed before the second
step has released nothing, and one that is killed after it everything: whoever
opens the path next removes the folders or names them.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Generator, Mapping
from typing import Any

from tff_algos.core import checks, durable, errors, folder_lock
from tff_algos.export import labels, manifest, versions

# Models of a release: folders of the export path.
MODELS = ('cluster_models', 'personalized_models')
HISTORY_FILE = 'releases.jsonl'
LINEAGE_FILE = 'lineage.json'
# The current version and the one before are never removed.
MIN_KEPT_VERSIONS = 2

_STAGED = '.releasing-'
_REMOVED = '.removing-'
_UNRELEASED = '.unreleased'


@dataclasses.dataclass(frozen=True)
class Release:
  """A line of the history.

  Attributes:
    version: Version number of both models.
    bundles: Model -> SHA-256 of its `bundle.json`.
    run: Workdir of the run, relative to the export path.
    round_num: Round of the run.
    config_hash: Hash of the run's config.
    dataset_version: Version of the run's dataset.
    gated: Whether the gate blessed it.
    rollback_of: Version whose content this one has, if it is a rollback.
  """

  version: int
  bundles: Mapping[str, str]
  run: str
  round_num: int
  config_hash: str
  dataset_version: str
  gated: bool
  rollback_of: int | None = None

  @property
  def origin(self) -> int:
    """Returns the version that was released first with this content."""
    return self.version if self.rollback_of is None else self.rollback_of


def read_history(export_dir: str | os.PathLike[str]) -> list[Release]:
  """Returns all releases and rollbacks, oldest first; empty if there are none.

  Raises:
    ExportError: If the history is damaged.
    OSError: If the disk fails.
  """
  path = pathlib.Path(export_dir, HISTORY_FILE)
  if not path.is_file():
    return []
  try:
    lines = path.read_text().splitlines()
    history = [Release(**json.loads(line)) for line in lines]
    lost = {one.origin for one in history} - {one.version for one in history}
    if lost:
      raise ValueError(f'it lacks the versions {sorted(lost)} of rollbacks')
    return history
  except (ValueError, TypeError) as error:
    raise errors.ExportError(
      f'{path} is damaged: {error}. Restore it from a backup; without it '
      'versions would be released again under numbers that were used.'
    ) from None


def current_bundles(
  export_dir: str | os.PathLike[str],
) -> dict[str, pathlib.Path]:
  """Returns model -> folder of the newest version; empty without any."""
  newest = {}
  for model in MODELS:
    folders = _versions_of(pathlib.Path(export_dir, model))
    if folders:
      newest[model] = folders[max(folders)]
  return newest


class ExportPath:
  """An export path, locked against other writers; see `opened`.

  Attributes:
    folder: The export path.
    history: Its releases, oldest first.
    completed: Release that a killed process had left incomplete, if any.
  """

  def __init__(self, folder: pathlib.Path):
    """Use `opened`."""
    self.folder = folder
    self.history = read_history(folder)
    self.completed = self._recover()

  @contextlib.contextmanager
  def unreleased(self) -> Generator[pathlib.Path]:
    """Yields a hidden folder for bundles to release; removes it at the end."""
    folder = self.folder / _UNRELEASED
    try:
      yield folder
    finally:
      _remove(folder)

  def release(
    self,
    bundles: Mapping[str, pathlib.Path],
    entry: Release,
    lineage: Mapping[str, Any],
  ) -> dict[str, pathlib.Path]:
    """Publishes the files of bundles as the next version.

    Args:
      bundles: Model -> folder, for all `MODELS`. Files are linked where the
        file system can, else copied, and must not be changed later.
      entry: Line of the history; its version and bundles are set here.
      lineage: For `assets.extra/lineage.json` of each bundle, where `version`
        and `rollback_of` are added.

    Returns:
      Model -> published folder.
    """
    version = self._next_version()
    sha256 = {model: manifest.bundle_sha256(bundles[model]) for model in MODELS}
    entry = dataclasses.replace(entry, version=version, bundles=sha256)
    content = {
      **lineage,
      'version': version,
      'rollback_of': entry.rollback_of,
    }
    try:
      for model in MODELS:
        self._stage(model, version, bundles[model], content)
      self._commit(entry)
    except BaseException:
      # The interrupt may have come after the line was written.
      self.history = read_history(self.folder)
      self._recover()
      raise
    self._recover()
    return {model: self.folder / model / str(version) for model in MODELS}

  def rollback(self, version: int | None = None) -> Release:
    """Makes the content of an older version current again.

    Nothing happens if it is current already.

    Args:
      version: The version; None for the newest one that was released before
        the current content.

    Raises:
      ExportError: If there is no such version, or its files have changed.
    """
    if not self.history:
      raise errors.ExportError(
        f'{self.folder} has no release to roll back to; binaries.export makes '
        'releases'
      )
    was_killed = self.completed is not None and self.completed.rollback_of
    if version is None and was_killed:
      return self.history[-1]
    target = self._find_target(version)
    if target.bundles == self.history[-1].bundles:
      return self.history[-1]
    folders = {
      model: self.folder / model / str(target.version) for model in MODELS
    }
    for folder in folders.values():
      manifest.verify_files(folder)
    self.release(
      folders,
      dataclasses.replace(target, rollback_of=target.origin),
      read_lineage(self.folder, target.version),
    )
    return self.history[-1]

  def labels_elsewhere(self) -> dict[str, dict[str, int]]:
    """Returns the labels that keep requests from the current content.

    They name the content that was current before; or they are those of a canary
    and its stable version, which answer requests that name no version.

    Returns:
      Model -> label -> version, of the models that have some.

    Raises:
      ExportError: If the labels cannot be read.
    """
    contents = {entry.version: entry.bundles for entry in self.history}
    current = self.history[-1].bundles
    before = [one for one in contents.values() if one != current][-1:]
    found = {}
    for model, one in labels.read(self.folder).items():
      has_canary = one.canary_share is not None
      routed = (labels.STABLE, labels.CANARY) if has_canary else ()
      elsewhere = {
        label: version
        for label, version in one.versions.items()
        if contents.get(version) in before
        or (label in routed and contents.get(version) != current)
      }
      if elsewhere:
        found[model] = elsewhere
    return found

  def remove_old(self, keep_versions: int) -> list[int]:
    """Removes old versions, and returns them.

    Labelled ones stay, and the one that a rollback goes back to. Servers that
    have loaded one that is removed answer no new request by it.

    Args:
      keep_versions: Number of versions to keep, >= 2: the current one and the
        one before always stay.

    Raises:
      ConfigError: If it is less.
      ExportError: If the labels cannot be read.
    """
    checks.check_int('keep_versions', keep_versions, minimum=MIN_KEPT_VERSIONS)
    found = labels.read(self.folder)
    needed = {
      version
      for model in MODELS
      if model in found
      for version in found[model].versions.values()
    }
    with contextlib.suppress(errors.ExportError, IndexError):  # None yet.
      # The newest versions may all have the current content.
      needed.add(self._find_target(None).version)
    old = sorted(self._on_disk())[:-keep_versions]
    removed = [version for version in old if version not in needed]
    for version in removed:
      for model in MODELS:
        folder = self.folder / model / str(version)
        if folder.is_dir():
          hidden = folder.with_name(f'{_REMOVED}{version}')
          os.rename(folder, hidden)
          _remove(hidden)
    return removed

  def _on_disk(self) -> set[int]:
    return {
      version
      for model in MODELS
      for version in _versions_of(self.folder / model)
    }

  def _next_version(self) -> int:
    used = {*self._on_disk(), *(entry.version for entry in self.history)}
    return 1 + max(used, default=0)

  def _find_target(self, version: int | None) -> Release:
    complete = set.intersection(
      *({*_versions_of(self.folder / model)} for model in MODELS)
    )
    there = [entry for entry in self.history if entry.version in complete]
    if version is None:
      # A checkpoint that is exported twice gives the same content twice.
      contents = [entry.bundles for entry in self.history]
      first = position = contents.index(contents[-1])
      while position:
        # What was current when this content was first released.
        before = contents[position - 1]
        copies = [entry for entry in there if entry.bundles == before]
        if copies:
          return copies[-1]
        position = contents.index(before)
      raise errors.ExportError(
        f'{self.folder} has no version that was released before the current '
        f'content, version {self.history[first].version}'
      )
    for entry in there:
      if entry.version == version:
        return entry
    known = ', '.join(str(entry.version) for entry in there)
    raise errors.ExportError(
      f'{self.folder} has no release with version {version}; it has {known}'
    )

  def _stage(
    self,
    model: str,
    version: int,
    source: pathlib.Path,
    lineage: Mapping[str, Any],
  ) -> None:
    base = self.folder / model
    durable.make_folder(base)
    staged = base / f'{_STAGED}{version}'
    staged.mkdir()
    for path in sorted(source.rglob('*')):  # A folder precedes its files.
      target = staged / path.relative_to(source)
      if path.is_dir():
        target.mkdir()
      else:
        _link_or_copy(path, target)
    path = staged / manifest.EXTRA_FOLDER / LINEAGE_FILE
    path.unlink(missing_ok=True)  # A link to that of another version.
    path.write_text(json.dumps(lineage, indent=2) + '\n')
    durable.sync_all(staged)
    durable.sync(base)

  def _commit(self, entry: Release) -> None:
    entries = [*self.history, entry]
    with durable.replacing(self.folder / HISTORY_FILE) as file:
      for one in entries:
        file.write(json.dumps(dataclasses.asdict(one)) + '\n')
    self.history = entries

  def _recover(self) -> Release | None:
    """Completes the last release, or removes what belongs to none."""
    completed = None
    last = self.history[-1] if self.history else None
    for model in MODELS:
      base = self.folder / model
      for staged in base.glob(f'{_STAGED}*'):
        if last and staged.name == f'{_STAGED}{last.version}':
          durable.publish(staged, base / str(last.version))
          completed = last
        else:
          _remove(staged)
      for hidden in base.glob(f'{_REMOVED}*'):
        _remove(hidden)
    _remove(self.folder / _UNRELEASED)
    return completed


@contextlib.contextmanager
def opened(
  export_dir: str | os.PathLike[str],
  *,
  must_exist: bool = False,
  keep_versions: int | None = None,
) -> Generator[ExportPath]:
  """Opens an export path to write, and repairs it after a process was killed.

  Args:
    export_dir: The export path.
    must_exist: Whether a missing one is an error; otherwise it is made.
    keep_versions: As of `ExportPath.remove_old`, which is called at the end,
      unless there is an error; None for all.

  Raises:
    DataError: If it is a file.
    ExportError: If its history is damaged, or it is missing; with
      `keep_versions`, if its labels cannot be read.
    WorkdirBusyError: If another process writes there.
  """
  folder = pathlib.Path(export_dir)
  if must_exist and not folder.is_dir():
    raise errors.ExportError(
      f'there is no export path {folder}; binaries.export makes one'
    )
  durable.make_folder(folder)
  with folder_lock.exclusive(folder, versions.busy(folder)):
    path = ExportPath(folder)
    if keep_versions is not None:
      labels.read(folder)  # Damaged ones are told before a release.
    yield path
    if keep_versions is not None:
      path.remove_old(keep_versions)


def repair(export_dir: str | os.PathLike[str]) -> None:
  """Completes or removes what a killed process left; no folder is made."""
  if pathlib.Path(export_dir).is_dir():
    with opened(export_dir):
      pass


def read_lineage(
  export_dir: str | os.PathLike[str], version: int
) -> dict[str, Any]:
  """Returns the lineage of a version; empty if it is not on the disk.

  Raises:
    ExportError: If it is damaged.
  """
  bundle = pathlib.Path(export_dir, MODELS[0], str(version))
  path = bundle / manifest.EXTRA_FOLDER / LINEAGE_FILE
  try:
    return json.loads(path.read_text()) if path.is_file() else {}
  except ValueError as error:
    raise errors.ExportError(
      f'{path} is damaged: {error}. Put a copy back, or remove the file: '
      'nothing else depends on it'
    ) from None


def _versions_of(base: pathlib.Path) -> dict[int, pathlib.Path]:
  return versions.version_folders(base) if base.is_dir() else {}


def _link_or_copy(source: pathlib.Path, target: pathlib.Path) -> None:
  try:
    os.link(source, target)
  except OSError:  # Another file system, or one without hard links.
    shutil.copyfile(source, target)


def _remove(folder: pathlib.Path) -> None:
  if folder.exists():
    shutil.rmtree(folder)
