"""Manifest of an exported bundle (`bundle.json`): provenance and checksums.

The manifest lies in `assets.extra/`, the folder of a SavedModel for the user's
own files. Reading it needs no TensorFlow.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import errors, records

ASSETS_FOLDER = 'assets'
EXTRA_FOLDER = 'assets.extra'
MANIFEST_FILE = 'bundle.json'
CLIENT_IDS_FILE = 'client_ids.json'
BUNDLE_FORMAT = 1
# Prefix of a bundle's error text for an unknown client; servers that recognise
# it respond with "not found".
UNKNOWN_CLIENT_TEXT = 'unknown client id'


@dataclasses.dataclass(frozen=True)
class Provenance:
  """Provenance of a bundle.

  Attributes:
    config_hash: Hash of the run's resolved config.
    round_num: The last committed round, >= 0; 0 is the initial state.
    dataset_version: Version of the federated dataset that was trained on.
  """

  config_hash: str
  round_num: int
  dataset_version: str


@functools.cache
def code_version() -> str:
  """Returns a hash of this library's source files, 16 hex digits."""
  package = pathlib.Path(__file__).parent.parent
  digest = hashlib.sha256()
  for path in sorted(package.rglob('*.py')):
    digest.update(path.relative_to(package).as_posix().encode() + b'\0')
    digest.update(path.read_bytes() + b'\0')
  return digest.hexdigest()[:16]


def write_manifest(
  bundle: pathlib.Path, provenance: Provenance, facts: Mapping[str, Any]
) -> None:
  """Writes `bundle.json` with the checksums of all files in the bundle.

  Args:
    bundle: The SavedModel's folder; `assets.extra/` must exist.
    provenance: Provenance of the models.
    facts: Description of the content, JSON-ready.

  Raises:
    OSError: If a file cannot be read or written.
  """
  content = {
    'bundle_format': BUNDLE_FORMAT,
    **dataclasses.asdict(provenance),
    **facts,
    'code_version': code_version(),
    'files': {
      path.relative_to(bundle).as_posix(): records.file_sha256(path)
      for path in sorted(bundle.rglob('*'))
      if path.is_file()
    },
  }
  path = bundle / EXTRA_FOLDER / MANIFEST_FILE
  path.write_text(json.dumps(content, indent=2) + '\n')


def read_manifest(bundle: pathlib.Path) -> dict[str, Any]:
  """Returns a bundle's manifest.

  Raises:
    ExportError: If it is missing, not JSON, or of another format.
  """
  path = bundle / EXTRA_FOLDER / MANIFEST_FILE
  try:
    content = json.loads(path.read_text())
  except (OSError, ValueError) as error:
    raise errors.ExportError(
      f'{path} cannot be read: {error}. Is {bundle} a bundle of this library?'
    ) from error
  if (
    not isinstance(content, dict)
    or content.get('bundle_format') != BUNDLE_FORMAT
    or not isinstance(content.get('files'), dict)
  ):
    raise errors.ExportError(
      f'{path} must have bundle_format {BUNDLE_FORMAT} and a list of files. '
      f'Export the bundle again with this version.'
    )
  return content


def verify_files(bundle: pathlib.Path) -> None:
  """Verifies the checksum of every file that the manifest lists.

  Raises:
    ExportError: If a file is missing or has changed since it was exported, or
      the manifest itself cannot be read.
  """
  for name, expected in read_manifest(bundle)['files'].items():
    try:
      actual = records.file_sha256(bundle / name)
    except OSError as error:
      raise errors.ExportError(
        f'{bundle / name} cannot be read: {error}. Export the bundle again.'
      ) from error
    if actual != expected:
      raise errors.ExportError(
        f'{bundle / name} has changed since it was exported: its sha256 is '
        f'{actual}, the manifest says {expected}. Export the bundle again.'
      )


def bundle_sha256(bundle: pathlib.Path) -> str:
  """Returns the SHA-256 of `bundle.json`, which has those of all other files.

  Raises:
    ExportError: If there is none.
  """
  path = bundle / EXTRA_FOLDER / MANIFEST_FILE
  try:
    return records.file_sha256(path)
  except OSError as error:
    raise errors.ExportError(
      f'{path} cannot be read: {error.strerror}. Is {bundle} a bundle of this '
      'library?'
    ) from None
