"""Canonical names in a SavedModel: equal models are equal files.

TensorFlow numbers functions and lookup tables by a counter of the process, so
that the bytes of an export would depend on all that the process did before.
"""

import copy
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2

from tff_algos.export import signature_defs

# Written by TensorFlow for its own logs, from the names before.
_FINGERPRINT = 'fingerprint.pb'
# Names with a counter, besides those of functions.
_COUNTED = re.compile(
  r'(?<=key_value_init)\d+|(?<=CustomGradient-)\d+'
  r'|(?<=_)\d+(?=___redundant_placeholder)|(?<=^counter )\d+$'
)
_TENSOR = 'tensorflow.TensorProto'
# Attributes of tables and captured tensors that may be the counter alone.
_COUNTERS = ('shared_name', '_user_specified_name')


def canonicalize(folder: pathlib.Path, methods: Mapping[str, str] = {}) -> None:
  """Renumbers the functions and tables of a SavedModel from 0, in their order.

  The counter of a process only rises, so the order of the numbers is the order
  of the code that made them.

  Args:
    folder: The SavedModel's folder, not published yet. `fingerprint.pb`, which
      is optional, is removed.
    methods: Signature -> TensorFlow Serving's method to be written; TensorFlow
      itself writes Predict for all.
  """
  path = folder / signature_defs.GRAPH_FILE
  content = saved_model_pb2.SavedModel()
  content.ParseFromString(path.read_bytes())
  libraries = [graph.graph_def.library for graph in content.meta_graphs]
  functions = {
    function.signature.name
    for library in libraries
    for function in library.function
  }
  found = {int(name.rpartition('_')[2]) for name in functions}

  def record(text: str) -> str:
    found.update(int(number) for number in _COUNTED.findall(text))
    return text

  _rename(content, record)
  ranks = {str(number): str(i) for i, number in enumerate(sorted(found))}

  def rank(text: str) -> str:
    if text in functions:
      stem, _, number = text.rpartition('_')
      return f'{stem}_{ranks[number]}'
    return _COUNTED.sub(lambda match: ranks[match[0]], text)

  _rename(content, rank)
  for graph in content.meta_graphs:
    for name, method in methods.items():
      graph.signature_def[name].method_name = method
  for library in libraries:
    library.function.sort(key=lambda function: function.signature.name)
  path.write_bytes(content.SerializeToString(deterministic=True))
  (folder / _FINGERPRINT).unlink(missing_ok=True)


def _rename(message: Any, new_name: Callable[[str], str]) -> None:
  """Replaces every name in a message in place."""
  for field, value in message.ListFields():
    if field.message_type and field.message_type.GetOptions().map_entry:
      _rename_map(value, new_name)
    elif field.message_type and field.message_type.full_name != _TENSOR:
      is_repeated = field.label == field.LABEL_REPEATED
      for part in value if is_repeated else (value,):
        _rename(part, new_name)
    elif field.type == field.TYPE_STRING:
      if field.label == field.LABEL_REPEATED:
        value[:] = [new_name(text) for text in value]
      else:
        setattr(message, field.name, new_name(value))


def _rename_map(entries: Any, new_name: Callable[[str], str]) -> None:
  """Replaces the keys of a map, and the names in its values."""
  # All leave before any comes back: one's new key may be another's old one.
  renamed = []
  for key in list(entries):
    value = entries[key]
    new_key = new_name(key) if isinstance(key, str) else key
    if isinstance(value, str):
      renamed.append((new_key, new_name(value)))
    elif hasattr(value, 'ListFields'):
      _rename(value, new_name)
      if key in _COUNTERS:
        name = new_name(f'counter {value.s.decode()}')
        value.s = name.removeprefix('counter ').encode()
      renamed.append((new_key, copy.deepcopy(value)))
    else:
      renamed.append((new_key, value))
  entries.clear()
  for key, value in renamed:
    if hasattr(value, 'ListFields'):
      entries[key].CopyFrom(value)
    else:
      entries[key] = value
