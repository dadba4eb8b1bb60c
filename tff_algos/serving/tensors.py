"""Conversion of JSON requests to checked arrays, and of arrays to responses.

The JSON is that of TensorFlow Serving's predict API: row format
(`instances` -> `predictions`) and columnar format (`inputs` -> `outputs`).
"""

# Protobuf creates the constants at import.
# pyright: reportAttributeAccessIssue=false
import base64
import binascii
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tff_algos.core import errors
from tff_algos.serving import server_config

_B64_KEY = 'b64'
_MAX_RANK = 32  # Of NumPy's arrays.
_KINDS = {
  'f': ('numbers', (int, float)),
  'i': ('whole numbers', (int,)),
  'u': ('whole numbers', (int,)),
  'b': ('true or false', (bool,)),
  'O': ('strings or {"b64": ...} objects', (str, dict)),
}


def inputs_from_rows(
  instances: Any,
  signature: meta_graph_pb2.SignatureDef,
  *,
  max_rows: int,
  is_raw: bool = False,
) -> dict[str, np.ndarray]:
  """Returns a signature's inputs from the value of `instances`.

  Args:
    instances: The value.
    signature: The signature.
    max_rows: Most rows, `check_num_rows`.
    is_raw: Whether it takes raw columns, see `check_input`; null is a missing
      number then.

  Raises:
    RequestError: If the value does not fit the signature.
  """
  if not isinstance(instances, list) or not instances:
    raise errors.RequestError("'instances' must be a list that is not empty")
  check_num_rows(len(instances), max_rows)
  if not any(_is_named(row) for row in instances):
    instances = [{_only_input(signature): row} for row in instances]
  for i, row in enumerate(instances):
    names = row if _is_named(row) else ()
    check_names(f"element {i} of 'instances'", names, signature)
  columns = {name: [row[name] for row in instances] for name in instances[0]}
  return _arrays(columns, signature, is_raw=is_raw)


def inputs_from_columns(
  inputs: Any,
  signature: meta_graph_pb2.SignatureDef,
  *,
  is_raw: bool = False,
) -> dict[str, np.ndarray]:
  """Returns a signature's inputs from the value of `inputs`.

  Args:
    inputs: The value.
    signature: The signature.
    is_raw: As of `inputs_from_rows`.

  Raises:
    RequestError: If the value does not fit the signature.
  """
  if not _is_named(inputs):
    inputs = {_only_input(signature): inputs}
  check_names("'inputs'", inputs, signature)
  return _arrays(inputs, signature, is_raw=is_raw)


def rows_from_outputs(outputs: Mapping[str, np.ndarray]) -> list[Any]:
  """Returns the value of `predictions`; a single output has no name.

  Raises:
    RequestError: If the outputs have no common first axis.
  """
  num_rows = {v.shape[0] if v.ndim else None for v in outputs.values()}
  if len(num_rows) != 1 or None in num_rows:
    raise errors.RequestError(
      f'the outputs {", ".join(outputs)} have no common batch axis; ask with '
      f"'inputs' instead of 'instances'"
    )
  columns = {name: _json_value(name, v) for name, v in outputs.items()}
  if len(columns) == 1:
    return next(iter(columns.values()))
  return [
    dict(zip(columns, row, strict=True))
    for row in zip(*columns.values(), strict=True)
  ]


def columns_from_outputs(outputs: Mapping[str, np.ndarray]) -> Any:
  """Returns the value of `outputs`; a single output has no name."""
  columns = {name: _json_value(name, v) for name, v in outputs.items()}
  return next(iter(columns.values())) if len(columns) == 1 else columns


def check_input(
  name: str,
  value: np.ndarray,
  info: meta_graph_pb2.TensorInfo,
  *,
  is_raw: bool = False,
) -> None:
  """Raises RequestError unless an array is finite and fits a signature.

  A signature of raw columns itself refuses numbers that are not finite, and
  names the row; missing ones are NaN.
  """
  shape = tf.TensorShape(info.tensor_shape)  # pyright: ignore[reportArgumentType]
  if not shape.is_compatible_with(value.shape):
    wanted = ['batch' if size is None else size for size in shape]
    raise errors.RequestError(
      f'input {name!r} must have shape {_spell(wanted)}, got '
      f'{_spell(value.shape)}'
    )
  if is_raw:
    return
  if value.dtype.kind == 'f' and not np.all(np.isfinite(value)):
    raise errors.RequestError(
      f'input {name!r} must be finite: it has NaN, infinite or too large values'
    )


def check_size(
  inputs: Mapping[str, np.ndarray],
  signature: meta_graph_pb2.SignatureDef,
  config: server_config.ServerConfig,
) -> None:
  """Raises RequestError (413) if a batch has more than `max_rows`."""
  check_num_rows(num_rows(inputs), max_rows(signature, config))


def num_rows(inputs: Mapping[str, np.ndarray]) -> int:
  """Returns the rows of the longest input, 0 without any."""
  return max((len(v) for v in inputs.values() if v.ndim), default=0)


def max_rows(
  signature: meta_graph_pb2.SignatureDef, config: server_config.ServerConfig
) -> int:
  """Returns the most rows that a signature is asked for at once.

  That is `config.max_rows`, or less if these had outputs of more than
  `max_request_bytes`, as far as the signature states their shapes.
  """
  row_bytes = 0
  for info in signature.outputs.values():
    sizes = [max(dim.size, 1) for dim in info.tensor_shape.dim[1:]]
    row_bytes += math.prod(sizes) * tf.as_dtype(info.dtype).size
  return min(config.max_rows, config.max_request_bytes // max(row_bytes, 1))


def check_num_rows(num_rows: int, limit: int) -> None:
  """Raises RequestError (413) if there are more rows than a limit."""
  if num_rows > limit:
    raise errors.RequestError(
      f'the request has {num_rows} rows, and at most {limit} are answered at '
      'once; send fewer',
      status=413,
    )


def bytes_of(what: str, leaf: str | dict[str, Any]) -> bytes:
  """Returns a string of JSON, or the bytes of a `{"b64": ...}` object.

  Raises:
    RequestError: If it is neither; `what` names its place.
  """
  try:
    if isinstance(leaf, str):
      return leaf.encode()
    return base64.b64decode(leaf[_B64_KEY], validate=True)
  except (KeyError, TypeError, ValueError, binascii.Error) as error:
    raise errors.RequestError(
      f'{what} must hold UTF-8 strings or {{"b64": ...}} objects in base64: '
      f'{type(error).__name__}'
    ) from None


def check_names(
  where: str, names: Iterable[str], signature: meta_graph_pb2.SignatureDef
) -> None:
  """Raises RequestError unless `names` are the signature's inputs."""
  if set(names) != set(signature.inputs):
    raise errors.RequestError(
      f'{where} must name the inputs {", ".join(sorted(signature.inputs))}, '
      f'got {", ".join(sorted(names))[:200] or "none"}'
    )


def _only_input(signature: meta_graph_pb2.SignatureDef) -> str:
  if len(signature.inputs) != 1:
    names = ', '.join(sorted(signature.inputs))
    raise errors.RequestError(
      f'the signature has several inputs ({names}): name them in objects'
    )
  return next(iter(signature.inputs))


def _is_named(value: Any) -> bool:
  return isinstance(value, dict) and set(value) != {_B64_KEY}


def _arrays(
  columns: Mapping[str, Any],
  signature: meta_graph_pb2.SignatureDef,
  *,
  is_raw: bool,
) -> dict[str, np.ndarray]:
  arrays = {}
  for name, value in columns.items():
    info = signature.inputs[name]
    arrays[name] = _array(name, value, info, may_miss=is_raw)
    check_input(name, arrays[name], info, is_raw=is_raw)
  return arrays


def _array(
  name: str, value: Any, info: meta_graph_pb2.TensorInfo, *, may_miss: bool
) -> np.ndarray:
  """Returns an array of the input's dtype; nothing is converted silently."""
  dtype = np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype)
  shape, leaves = _flattened(name, value)
  if may_miss and dtype.kind == 'f':
    leaves: list[Any] = [np.nan if one is None else one for one in leaves]
  if dtype.kind not in _KINDS:
    raise errors.RequestError(
      f'input {name!r} is of {dtype.name}, which JSON does not have; ask by '
      'gRPC'
    )
  what, allowed = _KINDS[dtype.kind]
  for kind in set(map(type, leaves)):
    if kind not in allowed:
      raise errors.RequestError(
        f'input {name!r} must hold {what}, got {_json_type(kind)}'
      )
  if info.dtype == types_pb2.DT_STRING:
    array = np.empty(len(leaves), object)
    array[:] = [bytes_of(f'input {name!r}', leaf) for leaf in leaves]
    return array.reshape(shape)
  return _numbers(name, leaves, dtype).reshape(shape)


def _flattened(name: str, value: Any) -> tuple[list[int], list[Any]]:
  """Returns the shape of nested lists, and their leaves.

  A level at a time: ten times as fast as an array of objects.
  """
  shape, leaves = [], [value]
  while leaves and list in (kinds := set(map(type, leaves))):
    sizes = set(map(len, leaves)) if kinds == {list} else ()
    if len(sizes) != 1 or len(shape) == _MAX_RANK:
      raise errors.RequestError(
        f'input {name!r} must be an array: its lists differ in length or depth'
      )
    shape += sizes
    leaves = list(itertools.chain.from_iterable(leaves))
  return shape, leaves


def _numbers(name: str, leaves: list[Any], dtype: np.dtype) -> np.ndarray:
  try:
    if dtype.kind in 'iu' and leaves:
      limits = np.iinfo(dtype)
      if min(leaves) < limits.min or max(leaves) > limits.max:
        raise OverflowError
    with np.errstate(over='ignore'):
      # By float64, as NumPy refuses whole numbers that are too large for it.
      return np.array(
        leaves, np.float64 if dtype.kind == 'f' else dtype
      ).astype(dtype)
  except OverflowError:
    raise errors.RequestError(
      f'input {name!r} has a number that does not fit in {dtype}'
    ) from None


def _json_value(name: str, value: np.ndarray) -> Any:
  if value.dtype.kind != 'O':
    return value.tolist()
  if name.endswith('_bytes'):
    spell = lambda leaf: {_B64_KEY: base64.b64encode(leaf).decode()}
  else:
    spell = lambda leaf: leaf.decode(errors='replace')
  return np.frompyfunc(spell, 1, 1)(value).tolist()


def _json_type(kind: type) -> str:
  names = {
    type(None): 'null',
    bool: 'true or false',
    str: 'a string',
    dict: 'an object',
    float: 'a number with a fraction',
  }
  return names.get(kind, 'a whole number')


def _spell(shape: Any) -> str:
  return f'[{", ".join(map(str, shape))}]'
