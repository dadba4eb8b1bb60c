"""JSON files with the SHA-256 of their content, which is checked when read.

The hash is the entry `checksum`: that of all other entries, spelled with sorted
keys.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_algos.core import durable, errors

_CHECKSUM = 'checksum'


def checksum(content: Mapping[str, Any]) -> str:
  """Returns the expected entry `checksum` of a content, in hex digits."""
  entries = {key: content[key] for key in content if key != _CHECKSUM}
  spelled = json.dumps(entries, sort_keys=True)
  return hashlib.sha256(spelled.encode()).hexdigest()


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a JSON-ready content with its checksum."""
  return {**content, _CHECKSUM: checksum(content)}


def write(path: pathlib.Path, content: Mapping[str, Any]) -> None:
  """Writes a sealed content atomically, indented, with a final line break.

  Missing folders are created.
  """
  durable.make_folder(path.parent)
  with durable.replacing(path, encoding='utf-8') as file:
    file.write(json.dumps(seal(content), indent=2) + '\n')


def load(path: pathlib.Path, remedy: str) -> dict[str, Any]:
  """Returns the content of a JSON file, whose checksum is not compared.

  Args:
    path: The file.
    remedy: What to do if it is missing or damaged, a sentence.

  Raises:
    DataError: If it is missing, a folder or no JSON object; names it.
    OSError: If the disk fails.
  """
  try:
    content = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError:
    raise errors.DataError(f'{path} is missing. {remedy}') from None
  except OSError as error:
    if errors.is_of_disk(error):
      raise
    raise errors.DataError(
      f'{path} cannot be read: {error.strerror}. {remedy}'
    ) from None
  except ValueError as error:
    raise errors.DataError(
      f'{path} is damaged: it is no JSON ({error}). {remedy}'
    ) from None
  if not isinstance(content, dict):
    raise errors.DataError(
      f'{path} is damaged: it must hold a JSON object, got '
      f'{type(content).__name__}. {remedy}'
    )
  return content


def read(path: pathlib.Path, remedy: str) -> dict[str, Any]:
  """Returns the content of a sealed file, without its checksum.

  Args:
    path: The file.
    remedy: What to do if it is missing or damaged, a sentence.

  Raises:
    DataError: As `load`; also if the content does not match the checksum.
    OSError: If the disk fails.
  """
  content = load(path, remedy)
  if content.pop(_CHECKSUM, None) != checksum(content):
    raise errors.DataError(
      f'{path} is damaged: it has been changed since it was written. {remedy}'
    )
  return content
