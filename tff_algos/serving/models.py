"""Model store: discovery, loading and execution of exported SavedModels.

The folder holds one base for each model, `<folder>/<model>/<version>/`, as
`binaries.export` writes it, and perhaps `labels.json` with names for versions.
The newest version serves by default, or those of a canary and its stable one.
While a store is refreshed, a thread loads and warms up what is published or
labelled, and what was there before answers until it is ready; else the next
request loads it.
"""

import contextlib
import copy
import os
import pathlib
import threading
import time
from collections.abc import (
  Collection,
  Generator,
  Mapping,
  Sequence,
)
from typing import NamedTuple

import numpy as np
from absl import logging

from tff_algos.core import errors
from tff_algos.export import labels as labels_lib
from tff_algos.export import versions
from tff_algos.serving import access, served_model, watched

# Delay before a bundle that failed to load, perhaps half copied, is retried.
_RETRY_SECONDS = 10.0
# Versions of a model that are held as requests named them: neither the newest
# nor labelled.
_MAX_NAMED = 2
# As often does TensorFlow Serving look for versions.
_REFRESH_SECONDS = 1.0


class VersionStatus(NamedTuple):
  """Status of one version on disk.

  Attributes:
    version: Version number.
    state: That of TensorFlow Serving: `'AVAILABLE'` if it answers, `'LOADING'`
      if it is about to, else `'END'`.
    error: Error of loading it; empty if it was loaded, or not tried yet.
  """

  version: int
  state: str
  error: str


class ModelStore:
  """All models under one folder, loaded on first use.

  Attributes:
    folder: The folder.
    labels: Labels of the versions of each model that has some.
    verified: Identities of folders whose checksums another process compared.
    caller: Who asks.
    version: Version of the model that `get` returned last; None for none.
  """

  def __init__(self, folder: str | os.PathLike[str]):
    self.folder = pathlib.Path(folder)
    self.labels: Mapping[str, labels_lib.Labels] = {}
    self.verified: Collection[served_model.Identity] = ()
    self.caller = access.Caller()
    self.version: int | None = None
    self._lock = threading.Lock()
    self._loaded: dict[str, dict[int, served_model.ServedModel]] = {}
    self._failures: dict[pathlib.Path, tuple[float, str]] = {}
    # Model name and version that requests named, for the thread to load.
    self._wanted: set[tuple[str, int]] = set()
    # Labels that take effect once their versions are loaded.
    self._new_labels: Mapping[str, labels_lib.Labels] = {}
    self._is_refreshed = False

  def seen_by(
    self,
    caller: access.Caller,
    labels: Mapping[str, labels_lib.Labels] | None = None,
    verified: Collection[served_model.Identity] = (),
  ) -> 'ModelStore':
    """Returns this store for one request.

    Args:
      caller: Who asks. If that is one client, its personalized models answer
        for this client alone; it is told no names of models, which may be those
        of clients, and a bundle of another client alone is unknown to it.
      labels: Labels; None for those of this store.
      verified: As the attribute.
    """
    seen = copy.copy(self)
    seen.caller, seen.version, seen.verified = caller, None, verified
    if labels is not None:
      seen.labels = labels
    return seen

  @contextlib.contextmanager
  def refreshed(self) -> Generator[None]:
    """Loads new and labelled versions by a thread while the context lasts.

    Raises:
      UserError: If the labels of versions are damaged, or name a version that
        does not load.
    """
    stop = threading.Event()
    labels = watched.Watched(
      'version labels',
      [self.folder / labels_lib.LABELS_FILE],
      self._load_labels,
    )
    thread = threading.Thread(
      target=self._refresh, args=(stop, labels), name='refresh', daemon=True
    )
    self._is_refreshed = True
    thread.start()
    try:
      yield
    finally:
      stop.set()
      thread.join()
      self._is_refreshed = False

  def _refresh(
    self, stop: threading.Event, labels: watched.Watched[None]
  ) -> None:
    while not stop.wait(_REFRESH_SECONDS):
      # The log has the versions that cannot be loaded.
      with contextlib.suppress(OSError):
        labels.current()
        self.forget_removed()
        for name in self._names():
          with contextlib.suppress(errors.RequestError):
            self._load_first(name, self._version_folders(name, None))
        # One, so that requests for many cannot keep new versions waiting.
        for name, version in [*self._wanted][:1]:
          self._wanted.discard((name, version))
          with contextlib.suppress(errors.RequestError):
            self._load_first(name, self._version_folders(name, version))

  def forget_removed(self) -> None:
    """Frees the models whose versions are no longer on disk."""
    with self._lock:
      names = self._names()
      for name, loaded in [*self._loaded.items()]:
        found = {}
        if name in names:
          try:
            found = versions.version_folders(self.folder / name)
          except OSError:
            continue  # It is there, and may be read the next time.
        kept = {v: model for v, model in loaded.items() if v in found}
        if not kept:
          del self._loaded[name]
        elif len(kept) < len(loaded):
          self._loaded[name] = kept

  def _load_labels(self) -> None:
    """Takes over the labels of the file once all their versions are loaded.

    Raises:
      UserError: If the file is damaged, or names a version that does not load.
    """
    self._new_labels = labels_lib.read(self.folder)
    for name, one in self._new_labels.items():
      for version in {*one.versions.values()}:
        try:
          self._load_first(name, self._version_folders(name, version))
        except errors.RequestError as error:
          raise errors.UserError(
            f'version labels {self.folder / labels_lib.LABELS_FILE} cannot be '
            f'used: {error}. Change them with binaries.label.'
          ) from error
    self.labels = self._new_labels

  def load_newest(self) -> None:
    """Loads the newest version of every model.

    Raises:
      UserError: If the folder is missing or holds no model that can be loaded.
    """
    problems = []
    try:
      names = self._names()
    except OSError as error:
      raise errors.UserError(
        f'model folder {self.folder} cannot be read: {error.strerror}. Write '
        f'models there with binaries.export first.'
      ) from error
    for name in names:
      try:
        self.get(name)
      except errors.RequestError as error:
        problems.append(str(error))
    if len(problems) == len(names):
      why = '; '.join(problems) or 'it has no <model>/<version> folders'
      raise errors.UserError(
        f'nothing can be served from {self.folder}: {why}. Write models there '
        f'with binaries.export first.'
      )

  def get(
    self, name: str, version: int | str | None = None
  ) -> served_model.ServedModel:
    """Returns a loaded model.

    Args:
      name: Its name.
      version: Its version, or a label; None for the stable one where there is a
        canary, else for the newest that loads.

    Raises:
      RequestError: (404) If there is no such model, version or label, or it
        cannot be loaded; (503) if a thread has yet to load it, or the folder
        cannot be read.
    """
    if version is None and self.canary(name) is not None:
      version = labels_lib.STABLE
    if not self._is_refreshed:
      if self.caller.client_id is not None:  # Tells whose model it is.
        self._load_first(name, self._version_folders(name, None))
      folders = self._version_folders(name, version)
      return self._as_seen(self._load_first(name, folders))
    # Without a listing of the folder, which holds up and may fail.
    wanted = version
    if isinstance(version, str):
      labels = self.labels.get(name, labels_lib.Labels())
      wanted = labels.versions.get(version, version)
    loaded = self._loaded.get(name, {})
    for candidate, model in sorted(loaded.items(), reverse=True):
      if wanted in (None, candidate):
        with contextlib.suppress(errors.ExportError):
          if self._still_loaded(name, candidate, model.folder) is model:
            return self._as_seen(model)
    # To load it may take long, which no small request may wait for.
    raise self._wanted_later(name, self._version_folders(name, version))

  def _wanted_later(
    self, name: str, folders: dict[int, pathlib.Path]
  ) -> errors.RequestError:
    """Lets the thread load a version; returns why it does not answer yet."""
    version = self._newest_loadable(folders)
    self._wanted.add((name, version))
    failures = self._failures.copy()
    if all(folder in failures for folder in folders.values()):
      return _cannot_load(name, [failures[one][1] for one in folders.values()])
    return errors.RequestError(
      f'version {version} of model {name!r} is being loaded; send again later',
      status=503,
    )

  def canary(self, name: str) -> labels_lib.Labels | None:
    """Returns the labels of a model that has a canary; None if it has none."""
    labels = self.labels.get(name)
    if labels is None or labels.canary_share is None:
      return None
    return labels

  def _as_seen(
    self, model: served_model.ServedModel
  ) -> served_model.ServedModel:
    is_restricted = self.caller.client_id is not None
    # Without a manifest it may be of any clients, as while it is copied.
    is_unclear = is_restricted and not model.has_manifest
    if is_unclear or self._is_hidden(model.name):
      raise self._unknown(model.name)
    self.version = model.version
    if is_restricted:
      model = copy.copy(model)
      model.only_client = self.caller.client_id
    return model

  def _load_first(
    self, name: str, folders: dict[int, pathlib.Path]
  ) -> served_model.ServedModel:
    """Returns the newest of these versions that loads."""
    reasons = []
    for candidate in reversed(folders):
      try:
        loaded = self._still_loaded(name, candidate, folders[candidate])
        if loaded is not None:
          return loaded
        # Only requests for models that are not loaded yet wait for the lock.
        with self._lock:
          return self._load(name, candidate, folders[candidate])
      except errors.ExportError as error:
        reasons.append(str(error))
    raise _cannot_load(name, reasons)

  def loaded_identities(self) -> frozenset[served_model.Identity]:
    """Returns the identities of the folders of all loaded versions."""
    return frozenset(
      model.identity
      for loaded in [*self._loaded.values()]
      for model in loaded.values()
    )

  def newest_loaded(self) -> dict[str, int]:
    """Returns the newest loaded version of each model that has one."""
    return {name: max(loaded) for name, loaded in [*self._loaded.items()]}

  def is_loaded(self, name: str, version: int) -> bool:
    """Returns whether a version is loaded."""
    return version in self._loaded.get(name, {})

  def names(self) -> list[str]:
    """Returns the names of the models on disk.

    Raises:
      RequestError: (403) If the store is restricted to a client; (503) if the
        folder cannot be read.
    """
    if self.caller.client_id is not None:
      raise errors.RequestError(
        'this token may not list the models', status=403
      )
    with _reading('the folder of the models'):
      return versions.model_names(self.folder)

  def statuses(
    self, name: str, version: int | str | None = None
  ) -> list[VersionStatus]:
    """Returns the state of a model's versions on disk, newest first.

    Raises:
      RequestError: (404) If there is no such model, version or label; (503) if
        the folder cannot be read.
    """
    folders = self._version_folders(name, version)
    coming = {
      self._newest_loadable(self._version_folders(name, None)),
      *self._labelled_versions(name),
      *(wanted for model, wanted in [*self._wanted] if model == name),
    }
    found = []
    for v in reversed(folders):
      error = self._failures.get(folders[v], (0.0, ''))[1]
      state = 'LOADING' if v in coming and not error else 'END'
      with contextlib.suppress(errors.ExportError):
        if self._still_loaded(name, v, folders[v]) is not None:
          state = 'AVAILABLE'
      found.append(VersionStatus(v, state, error))
    return found

  def _newest_loadable(self, folders: dict[int, pathlib.Path]) -> int:
    """Returns the newest version that has not failed to load, or of all."""
    failures = self._failures.copy()
    return max(
      (v for v, folder in folders.items() if folder not in failures),
      default=max(folders),
    )

  def _names(self) -> list[str]:
    with os.scandir(self.folder) as entries:
      return sorted(entry.name for entry in entries if entry.is_dir())

  def _version_folders(
    self, name: str, version: int | str | None
  ) -> dict[int, pathlib.Path]:
    folders = {}
    with _reading(f'the folder of model {errors.shorten(repr(name))}'):
      # Untrusted input: the name must be in the listing, never a path.
      names = self._names()
      if name in names and not self._is_hidden(name):
        folders = versions.version_folders(self.folder / name)
    if not folders:
      raise self._unknown(name, names)
    if version is None:
      return folders
    if isinstance(version, str):
      version = self._labelled(name, version)
    if version not in folders:
      raise errors.RequestError(
        f'model {name!r} has no version {errors.shorten(str(version))}; it has '
        f'{errors.shorten(", ".join(map(str, folders)))}',
        status=404,
      )
    return {version: folders[version]}

  def _is_hidden(self, name: str) -> bool:
    """Returns whether a caller may not know of a model, another client's.

    While a store is refreshed, a model of which nothing is loaded may be one.
    """
    client_id = self.caller.client_id
    if client_id is None:
      return False
    loaded = self._loaded.get(name)
    if not loaded:
      return self._is_refreshed
    return any(
      len(model.client_ids) == 1 and model.client_ids != (client_id,)
      for model in loaded.values()
    )

  def _unknown(
    self, name: str, names: Sequence[str] = ()
  ) -> errors.RequestError:
    others = f'; the models are {errors.shorten(", ".join(names)) or "none"}'
    return errors.RequestError(
      f'unknown model {errors.shorten(repr(name))}'
      f'{others if self.caller.client_id is None else ""}',
      status=404,
    )

  def _labelled(self, name: str, label: str) -> int:
    labels = self.labels.get(name, labels_lib.Labels()).versions
    if label not in labels:
      raise errors.RequestError(
        f'model {name!r} has no label {errors.shorten(repr(label))}; it has '
        f'{errors.shorten(", ".join(labels)) or "none"}',
        status=404,
      )
    return labels[label]

  def _labelled_versions(self, name: str) -> set[int]:
    """Returns the versions with a label, or with one that takes effect soon."""
    return {
      v
      for labels in (self.labels, self._new_labels)
      for v in labels.get(name, labels_lib.Labels()).versions.values()
    }

  def _still_loaded(
    self, name: str, version: int, folder: pathlib.Path
  ) -> served_model.ServedModel | None:
    model = self._loaded.get(name, {}).get(version)
    if model is None:
      return None
    try:
      identity = served_model.folder_identity(folder)
    except errors.ExportError as error:
      if isinstance(error.__cause__, FileNotFoundError):
        raise
      return model  # Such as a disk that does not answer: it may come back.
    return model if model.identity == identity else None

  def _load(
    self, name: str, version: int, folder: pathlib.Path
  ) -> served_model.ServedModel:
    model = self._still_loaded(name, version, folder)
    if model is not None:  # Another request loaded it in the meantime.
      return model
    failed_at, reason = self._failures.get(folder, (-np.inf, ''))
    if time.monotonic() - failed_at < _RETRY_SECONDS:
      raise errors.ExportError(reason)
    before = self._loaded.get(name, {})
    try:
      if any(one.has_manifest for one in before.values()):
        served_model.check_has_manifest(folder)
      model = served_model.ServedModel(name, version, folder, self.verified)
      model.warm_up()
    except Exception as error:  # Any broken file can raise anything in TF.
      reason = errors.shorten(f'{folder} cannot be loaded: {error}')
      logging.error('%s', reason)
      self._failures[folder] = (time.monotonic(), reason)
      raise errors.ExportError(reason) from error
    logging.info('Serving version %d of model %r.', version, name)
    self._failures.pop(folder, None)
    # A new newest version replaces all without a label, and an older one, which
    # a request named, all but the newest and few others.
    newest = max({*before, version})
    labelled = self._labelled_versions(name)
    others = [v for v in before if v not in labelled and v != newest]
    kept = 0 if version == newest else _MAX_NAMED - 1
    gone = others[: max(0, len(others) - kept)]
    left = {v: one for v, one in before.items() if v not in gone}
    self._loaded[name] = {**left, version: model}
    return model


@contextlib.contextmanager
def _reading(what: str) -> Generator[None]:
  """Raises RequestError (503) for an error of the disk."""
  try:
    yield
  except OSError as error:
    raise errors.RequestError(
      f'{what} cannot be read: {error.strerror}', status=503
    ) from error


def _cannot_load(name: str, reasons: Sequence[str]) -> errors.RequestError:
  return errors.RequestError(
    f'model {name!r} cannot be loaded: {"; ".join(reasons)}', status=404
  )
