"""Validation of raw examples: valid examples and dead letters."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.examples import hashing, raw_columns
from pipelines.sources import base
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib

# The plan keeps the client id of every example in memory, padded to the longest
# id.
MAX_CLIENT_ID_CHARACTERS = 128
_INTEGERS = {
  'uint8': 'a pixel is not an integer from 0 to 255',
  'int32': 'a token is not an integer of 32 bits',
}


# Features, `[n, *x_shape]` of the stored dtype, or raw columns.
Inputs = Array | raw_columns.Columns


class CleanBlock(NamedTuple):
  """Valid examples of a block, in their order.

  Attributes:
    x: Features or raw columns.
    y: Labels, int32 or float32 `[n, *y_shape]`.
    key: `hashing.content_key` of the features, uint8 `[n, KEY_BYTES]`.
    is_test: Whether it is in the source's official test split, bool `[n]`.
    native_source: Native source distribution, -1 if none, int32 `[n]`.
    client: Natural client, '' if none, str `[n]`.
    group: `hashing.text_key` of the group that no split may divide, uint8
      `[n, KEY_BYTES]`; `[n, 0]` unless it is needed.
    time: Time, NaN if none, float64 `[n]`; `[0]` unless it is needed.
  """

  x: Inputs
  y: Array
  key: Array
  is_test: Array
  native_source: Array
  client: Array
  group: Array
  time: Array


class DeadLetter(NamedTuple):
  """Dead letter: a malformed example.

  Attributes:
    part: Part of the source, see `sources.base.Block`.
    position: Position in the part, from 0.
    reason: See `sources.base.Problem`.
    column: See `sources.base.Problem`.
    value: See `sources.base.Problem`.
    client_id: Natural client, if it is known.
    file: See `sources.base.Location`.
    line: See `sources.base.Location`.
    row: See `sources.base.Location`.
  """

  part: str
  position: int
  reason: str
  column: str | None = None
  value: str | None = None
  client_id: str | None = None
  file: str | None = None
  line: int | None = None
  row: Mapping[str, Any] | Sequence[Any] | None = None

  @property
  def place(self) -> str:
    """Returns file and line, or else part and position, and the file."""
    if self.file is None or self.line is None:
      file = '' if self.file is None else f', {self.file}'
      return f'number {self.position} of {self.part!r}{file}'
    return f'line {self.line} of {self.file}'


class Needs(NamedTuple):
  """What a dataset needs of every example.

  Attributes:
    label: Whether it needs a label.
    client: Whether they need its natural client.
    group: Whether they need its group.
    time: Whether they need its time.
  """

  label: bool = True
  client: bool = False
  group: bool = False
  time: bool = False


def find_problem(
  example: base.RawExample,
  features: base.Features,
  needs: Needs = Needs(),
  spec: spec_lib.FeatureSpec | None = None,
) -> base.Problem | None:
  """Returns the error of an example, or None if it is valid."""
  return (
    example.problem
    or (
      raw_columns.find_problem(example.x, spec)
      if spec
      else _find_problem_of_features(example.x, features)
    )
    or _find_problem_of_labels(example.y, features, needs)
    or _find_client_problem(example.client)
    or _find_lack(example, needs)
  )


def _find_problem_of_features(
  features_of_example: Any, features: base.Features
) -> base.Problem | None:
  if features_of_example is None:
    return base.Problem('the features are missing')
  x = np.asarray(features_of_example)
  if x.shape != features.x_shape:
    return base.Problem(f'the shape is {x.shape}, not {features.x_shape}')
  if x.dtype.kind not in 'uifb':
    return base.Problem(f'the features are {x.dtype}, not numbers')
  if x.dtype.kind == 'f' and not np.isfinite(x).all():
    return base.Problem('a feature is not finite')
  if x.dtype != features.x_dtype:
    with np.errstate(over='ignore', invalid='ignore'):
      stored = x.astype(features.x_dtype)
    if features.x_dtype in _INTEGERS and not np.array_equal(x, stored):
      return base.Problem(_INTEGERS[features.x_dtype])
    if not np.all(np.isfinite(stored)):
      return base.Problem(f'a feature is too large for {features.x_dtype}')
  if features.x_range is not None:
    least, greatest = features.x_range
    outside = x[(x < least) | (x > greatest)]
    if outside.size:
      return base.Problem(
        f'a feature is not from {least:g} to {greatest:g}',
        value=repr(float(outside[0])),
      )
  return None


def _find_problem_of_labels(
  label: Any, features: base.Features, needs: Needs
) -> base.Problem | None:
  if label is None:
    return base.Problem('the label is missing') if needs.label else None
  if not features.y_shape:
    return _find_label_problem(label, features)
  shape = np.shape(label)
  if shape != features.y_shape:
    return base.Problem(
      f'the labels have shape {shape}, not {features.y_shape}'
    )
  problems = (_find_label_problem(one, features) for one in label)
  return next(filter(None, problems), None)


def _find_label_problem(
  label: Any, features: base.Features
) -> base.Problem | None:
  if (
    not isinstance(label, (int, float, np.number))
    or not abs(label) <= raw_columns.LARGEST_FLOAT32
  ):
    return base.Problem(
      'the label is not a finite float32 number', value=repr(label)
    )
  if features.task == 'classification' and (
    label != int(label) or not 0 <= label < features.num_classes
  ):
    return base.Problem(
      f'the label is not from 0 to {features.num_classes - 1}',
      value=repr(label),
    )
  return None


def _find_client_problem(client: Any) -> base.Problem | None:
  """Returns the error of a client id; slashes and quotes are valid."""
  if client is None:
    return None
  reason = None
  if not isinstance(client, str):
    reason = 'the client id is not text'
  elif len(client) > MAX_CLIENT_ID_CHARACTERS:
    reason = (
      f'the client id has {len(client)} characters, allowed are '
      f'{MAX_CLIENT_ID_CHARACTERS}'
    )
  elif not raw_columns.is_unicode(client):
    reason = 'the client id is not Unicode text'
  elif '\0' in client:  # NumPy drops trailing ones, which merges two clients.
    reason = 'the client id has a zero byte'
  return None if reason is None else base.Problem(reason, value=repr(client))


def _find_lack(example: base.RawExample, needs: Needs) -> base.Problem | None:
  """Returns the error of an example that lacks what is needed of it."""
  if needs.client and not example.client:
    return base.Problem(
      "the client id is missing, which partition.law 'natural' needs"
    )
  if needs.group and not example.group:
    return base.Problem("the group is missing, which split_by='group' needs")
  if needs.group and not raw_columns.is_unicode(example.group or ''):
    return base.Problem(
      'the group is not Unicode text', value=repr(example.group)
    )
  if needs.time and (example.time is None or not math.isfinite(example.time)):
    return base.Problem('the time is missing, which splits by time need')
  return None


def clean(
  block: base.Block,
  examples: Iterable[base.RawExample],
  features: base.Features,
  needs: Needs = Needs(),
  spec: spec_lib.FeatureSpec | None = None,
) -> tuple[CleanBlock, list[DeadLetter]]:
  """Splits the examples of a block into valid examples and dead letters."""
  sound, dead = [], []
  for offset, example in enumerate(examples):
    problem = find_problem(example, features, needs, spec)
    if problem is None:
      sound.append(example)
    else:
      client_id = example.client if isinstance(example.client, str) else None
      dead.append(
        DeadLetter(
          block.part, block.start + offset, *problem, client_id=client_id
        )
      )
  return _stack(sound, features, needs, spec), dead


def locate(letter: DeadLetter, source: base.Source) -> DeadLetter:
  """Returns a dead letter with its file, line and row, if they are known."""
  place = source.locate(letter.part, letter.position)
  return letter._replace(**place._asdict())


def redact(letter: DeadLetter) -> DeadLetter:
  """Returns a dead letter without content of the raw data.

  A file without lines may be that of one example, whose path then tells its
  client or class.
  """
  file = None if letter.line is None else letter.file
  return letter._replace(value=None, client_id=None, row=None, file=file)


def _stack(
  examples: list[base.RawExample],
  features: base.Features,
  needs: Needs,
  spec: spec_lib.FeatureSpec | None,
) -> CleanBlock:
  n = len(examples)
  inputs = [example.x for example in examples]
  if spec:
    x = raw_columns.stack(inputs, spec)
    key = raw_columns.keys(x, n)
  else:
    x = np.array(inputs, features.x_dtype).reshape((n, *features.x_shape))
    keys = b''.join(hashing.content_key(row) for row in x)
    key = np.frombuffer(keys, np.uint8).reshape(n, hashing.KEY_BYTES)
  native = [
    -1 if example.native_source is None else example.native_source
    for example in examples
  ]
  return CleanBlock(
    x=x,
    y=_stack_labels(examples, features),
    key=key,
    is_test=np.array([example.is_test for example in examples], bool),
    native_source=np.array(native, np.int32),
    client=np.array([example.client or '' for example in examples], str),
    group=_stack_groups(examples)
    if needs.group
    else np.empty((n, 0), np.uint8),
    time=np.array(
      [example.time for example in examples] if needs.time else [], np.float64
    ),
  )


def _stack_labels(
  examples: list[base.RawExample], features: base.Features
) -> Array:
  """Returns labels; missing ones as `schema.missing_label`, `[n, *y_shape]`."""
  is_classes = features.task == 'classification'
  missing = np.full(features.y_shape, schema_lib.missing_label(is_classes))
  labels = [missing if one.y is None else one.y for one in examples]
  dtype = np.int32 if is_classes else np.float32
  return np.array(labels, dtype).reshape((-1, *features.y_shape))


def _stack_groups(examples: list[base.RawExample]) -> Array:
  """Returns the hash of each example's group, uint8 `[n, KEY_BYTES]`."""
  keys = b''.join(hashing.text_key(example.group or '') for example in examples)
  return np.frombuffer(keys, np.uint8).reshape(-1, hashing.KEY_BYTES)


def check_dead_letters(
  letters: Sequence[DeadLetter], num_raw: int, allowed_fraction: float
) -> None:
  """Raises DataError if too many examples are malformed, or all of them.

  Args:
    letters: The malformed examples.
    num_raw: All examples.
    allowed_fraction: Largest share of malformed examples, >= 0 and < 1.
  """
  if not num_raw:
    raise errors.DataError(
      'the source has no examples; is it the right folder or file?'
    )
  share = len(letters) / num_raw
  if share <= allowed_fraction and share < 1:
    return
  reasons = Counter(
    str(base.Problem(letter.reason, letter.column)) for letter in letters
  ).most_common(3)
  raise errors.DataError(
    f'{len(letters)} of {num_raw} raw examples are malformed, allowed is a '
    f'fraction of {allowed_fraction:g}. Most frequent: '
    + '; '.join(f'{reason} ({count})' for reason, count in reasons)
    + f'. The first is {letters[0].place}. Mend the raw data'
    + (
      ', or raise max_dead_letter_fraction to leave them out.'
      if len(letters) < num_raw
      else '.'
    )
  )
