"""Version labels of exported models, and the share of traffic of a canary.

`<export_dir>/labels.json` names versions of models, as `version_labels` of
TensorFlow Serving do:

  {"cluster_models": {"labels": {"stable": 3, "canary": 4},
                      "canary_share": 0.1}}

With `canary_share`, requests that name no version are answered by `canary` for
that share of the clients, and by `stable` for the others; without it, by the
newest version.
"""

import json
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_algos.core import durable, errors, folder_lock
from tff_algos.export import versions

LABELS_FILE = 'labels.json'
STABLE = 'stable'
CANARY = 'canary'

# As a part of URLs, where a name of dots leads elsewhere.
_LABEL = re.compile(r'[A-Za-z0-9_-][A-Za-z0-9._-]*')
_LABELS_KEY = 'labels'
_SHARE_KEY = 'canary_share'


class Labels(NamedTuple):
  """Labels of one model.

  Attributes:
    versions: Label -> version.
    canary_share: Share of the clients, from 0 to 1, whose requests without a
      version are answered by the canary; None for the newest version for all.
  """

  versions: Mapping[str, int] = {}
  canary_share: float | None = None


def read(export_dir: str | os.PathLike[str]) -> dict[str, Labels]:
  """Returns the labels of each model that has some; empty without a file.

  Raises:
    ExportError: If the file is damaged.
    OSError: If the disk fails.
  """
  path = pathlib.Path(export_dir, LABELS_FILE)
  try:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
      raise ValueError('it is no JSON object')  # noqa: TRY004
    return {name: _parse(name, value) for name, value in content.items()}
  except FileNotFoundError:
    return {}
  except (OSError, ValueError) as error:
    if errors.is_of_disk(error):
      raise
    raise errors.ExportError(
      f'version labels {path} cannot be used: {error}. binaries.label writes '
      'the file; without it no version has a label.'
    ) from error


def assign(
  export_dir: str | os.PathLike[str], models: Iterable[str], labels: Labels
) -> None:
  """Replaces the labels of models; those of others stay.

  Servers see all of the change or nothing.

  Args:
    export_dir: Folder of the models, `<model>/<version>/`.
    models: Their names.
    labels: Their labels; without any they have none any more.

  Raises:
    ExportError: If a labelled version is missing, a label or the share is not
      allowed, or the file is damaged.
    OSError: If the disk is full or may not be written.
    WorkdirBusyError: If another process writes in the folder.
  """
  folder = pathlib.Path(export_dir)
  try:
    with folder_lock.exclusive(folder, versions.busy(folder)):
      found = read(folder)
      for model in models:
        if model not in found and not (folder / model).is_dir():
          raise ValueError(f'there is no model {model!r}')
        _check(
          model,
          labels,
          # Without labels its folder may be gone.
          versions.version_folders(folder / model) if labels.versions else (),
        )
        found[model] = labels
      content = {
        model: {
          _LABELS_KEY: dict(one.versions),
          **(
            {} if one.canary_share is None else {_SHARE_KEY: one.canary_share}
          ),
        }
        for model, one in found.items()
        if one.versions
      }
      with durable.replacing(folder / LABELS_FILE) as file:
        file.write(json.dumps(content, indent=2) + '\n')
  except (OSError, ValueError) as error:
    if errors.is_of_disk(error):
      raise
    raise errors.ExportError(
      f'versions under {folder} cannot be labelled: {error}'
    ) from error


def _parse(model: str, value: Any) -> Labels:
  """Raises ValueError if the value of a model is not as above."""
  if not isinstance(value, dict) or set(value) - {_LABELS_KEY, _SHARE_KEY}:
    raise ValueError(
      f'{model!r} must have an object of {_LABELS_KEY!r} and, if it has a '
      f'canary, {_SHARE_KEY!r}'
    )
  named = value.get(_LABELS_KEY)
  if not isinstance(named, dict):
    raise ValueError(f'{_LABELS_KEY!r} of {model!r} must be an object')  # noqa: TRY004
  labels = Labels(named, value.get(_SHARE_KEY))
  _check(model, labels)
  return labels


def _check(
  model: str, labels: Labels, there: Iterable[int] | None = None
) -> None:
  """Raises ValueError unless labels are allowed, and their versions `there`."""
  for label, version in labels.versions.items():
    if not _LABEL.fullmatch(label):
      raise ValueError(
        f'label {label!r} of {model!r} must have letters, digits and ._- '
        'alone, and no dot at its start'
      )
    if type(version) is not int or version < 1:
      raise ValueError(
        f'label {label!r} of {model!r} must name a version, a whole number '
        f'from 1, got {version!r}'
      )
    if there is not None and version not in there:
      raise ValueError(
        f'{model!r} has no version {version}; it has '
        f'{", ".join(map(str, there))}'
      )
  share = labels.canary_share
  if share is None:
    return
  if type(share) not in (int, float) or not 0 <= share <= 1:
    raise ValueError(
      f'{_SHARE_KEY!r} of {model!r} must be from 0 to 1, got {share!r}'
    )
  if not {STABLE, CANARY} <= set(labels.versions):
    raise ValueError(
      f'{_SHARE_KEY!r} of {model!r} needs both labels, {STABLE!r} and '
      f'{CANARY!r}'
    )
