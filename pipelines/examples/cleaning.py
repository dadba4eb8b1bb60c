"""Validation of raw examples: valid examples and dead letters."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.examples import hashing
from pipelines.sources import base
from tff_algos.core import errors
from tff_algos.core.structures import Array

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
# The plan keeps the client id of every example in memory, padded to the longest
# id.
MAX_CLIENT_ID_CHARACTERS = 128
_INTEGERS = {
  'uint8': 'a pixel is not an integer from 0 to 255',
  'int32': 'a token is not an integer of 32 bits',
}


class CleanBlock(NamedTuple):
  """Valid examples of a block, in their order.

  Attributes:
    x: Features, `[n, *x_shape]` of the stored dtype.
    y: Labels, int32 or float32 `[n, *y_shape]`.
    key: `hashing.content_key` of the features, uint8 `[n, KEY_BYTES]`.
    is_test: Whether it is in the source's official test split, bool `[n]`.
    native_source: Native source distribution, -1 if none, int32 `[n]`.
    client: Natural client, '' if none, str `[n]`.
  """

  x: Array
  y: Array
  key: Array
  is_test: Array
  native_source: Array
  client: Array


class DeadLetter(NamedTuple):
  """Dead letter: a malformed example.

  Attributes:
    part: Part of the source, see `sources.base.Block`.
    position: Position in the part.
    reason: Description of the error.
  """

  part: str
  position: int
  reason: str


def find_problem(
  example: base.RawExample, features: base.Features
) -> str | None:
  """Returns the error of an example, or None if it is valid."""
  if example.problem is not None:
    return example.problem
  if example.x is None:
    return 'the features are missing'
  if example.y is None:
    return 'the label is missing'
  x = np.asarray(example.x)
  if x.shape != features.x_shape:
    return f'the shape is {x.shape}, not {features.x_shape}'
  if x.dtype.kind not in 'uifb':
    return f'the features are {x.dtype}, not numbers'
  if x.dtype.kind == 'f' and not np.isfinite(x).all():
    return 'a feature is not finite'
  if x.dtype != features.x_dtype:
    with np.errstate(over='ignore', invalid='ignore'):
      stored = x.astype(features.x_dtype)
    if features.x_dtype in _INTEGERS and not np.array_equal(x, stored):
      return _INTEGERS[features.x_dtype]
    if not np.all(np.isfinite(stored)):
      return f'a feature is too large for {features.x_dtype}'
  return _find_problem_of_labels(example.y, features) or _find_client_problem(
    example.client
  )


def _find_problem_of_labels(label: Any, features: base.Features) -> str | None:
  if not features.y_shape:
    return _find_label_problem(label, features)
  shape = np.shape(label)
  if shape != features.y_shape:
    return f'the labels have shape {shape}, not {features.y_shape}'
  problems = (_find_label_problem(one, features) for one in label)
  return next(filter(None, problems), None)


def _find_label_problem(label: Any, features: base.Features) -> str | None:
  if (
    not isinstance(label, (int, float, np.number))
    or not abs(label) <= _LARGEST_FLOAT32
  ):
    return f'the label {label!r} is not a finite float32 number'
  if features.task == 'classification' and (
    label != int(label) or not 0 <= label < features.num_classes
  ):
    return f'the label {label!r} is not from 0 to {features.num_classes - 1}'
  return None


def _find_client_problem(client: Any) -> str | None:
  """Returns the error of a client id; slashes and quotes are valid."""
  if client is None:
    return None
  if not isinstance(client, str):
    return f'the client id {client!r} is not text'
  if len(client) > MAX_CLIENT_ID_CHARACTERS:
    return (
      f'the client id {client[:20]!r}... has {len(client)} characters, allowed '
      f'are {MAX_CLIENT_ID_CHARACTERS}'
    )
  try:
    client.encode()
  except UnicodeEncodeError:
    return f'the client id {client!r} is not Unicode text'
  # NumPy drops trailing zeros, which would merge two clients.
  return f'the client id {client!r} has a zero byte' if '\0' in client else None


def clean(
  block: base.Block,
  examples: Iterable[base.RawExample],
  features: base.Features,
) -> tuple[CleanBlock, list[DeadLetter]]:
  """Splits the examples of a block into valid examples and dead letters."""
  sound, dead = [], []
  for offset, example in enumerate(examples):
    problem = find_problem(example, features)
    if problem is None:
      sound.append(example)
    else:
      dead.append(DeadLetter(block.part, block.start + offset, problem))
  return _stack(sound, features), dead


def _stack(
  examples: list[base.RawExample], features: base.Features
) -> CleanBlock:
  n = len(examples)
  label_dtype = np.int32 if features.task == 'classification' else np.float32
  x = np.array([example.x for example in examples], features.x_dtype)
  x = x.reshape((n, *features.x_shape))
  keys = b''.join(hashing.content_key(row) for row in x)
  native = [
    -1 if example.native_source is None else example.native_source
    for example in examples
  ]
  return CleanBlock(
    x=x,
    y=np.array([example.y for example in examples], label_dtype).reshape(
      (n, *features.y_shape)
    ),
    key=np.frombuffer(keys, np.uint8).reshape(n, hashing.KEY_BYTES),
    is_test=np.array([example.is_test for example in examples], bool),
    native_source=np.array(native, np.int32),
    client=np.array([example.client or '' for example in examples], str),
  )


def check_dead_letters(
  letters: Sequence[DeadLetter], num_raw: int, allowed_fraction: float
) -> None:
  """Raises DataError if too many examples are malformed, or all of them.

  Args:
    letters: The malformed examples.
    num_raw: All examples.
    allowed_fraction: Largest share of malformed examples, 0 to 1.
  """
  if not num_raw:
    raise errors.DataError(
      'the source has no examples; is it the right folder or file?'
    )
  if len(letters) <= allowed_fraction * num_raw and len(letters) < num_raw:
    return
  reasons = Counter(letter.reason for letter in letters).most_common(3)
  raise errors.DataError(
    f'{len(letters)} of {num_raw} raw examples are malformed, allowed is a '
    f'fraction of {allowed_fraction:g}. Most frequent: '
    + '; '.join(f'{reason} ({count})' for reason, count in reasons)
    + f'. The first is number {letters[0].position} of {letters[0].part!r}. '
    'Mend the raw data, or raise max_dead_letter_fraction (below 1) to leave '
    'them out.'
  )
