"""Statements of a vote: selected or elected clients and digest of the result.

The paper's request contains the selected clients and an operation whose result
the replicates check. Here it contains the result's digest, so members compare
32 bytes instead of models.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np

from tff_algos.core import errors


def digest_arrays(arrays: Mapping[str, np.ndarray]) -> str:
  """Returns the SHA-256 of named arrays: names, dtypes, shapes and all bits.

  Args:
    arrays: Numeric, of any shape. Arrays that differ in one bit have different
      digests, so members must sum in the same order.

  Raises:
    ConfigError: If an array holds Python objects.
  """
  hashed = hashlib.sha256()
  for name in sorted(arrays):
    array = np.asarray(arrays[name])
    if array.dtype.hasobject:
      raise errors.ConfigError(
        f'{name} has dtype {array.dtype}, which has no digest; make it an '
        'array of numbers'
      )
    little = np.ascontiguousarray(array, array.dtype.newbyteorder('<'))
    header = json.dumps([name, little.dtype.str, array.shape])
    hashed.update(header.encode() + b'\n' + little.tobytes())
  return hashed.hexdigest()


def state(client_ids: Iterable[str], result_digest: str = '') -> str:
  """Returns the statement that members vote on.

  Args:
    client_ids: Selected or elected clients, in any order.
    result_digest: Digest of the result, such as the new model; empty for an
      election, which has no other result.
  """
  content = {'client_ids': sorted(client_ids), 'result': result_digest}
  return json.dumps(content, sort_keys=True, separators=(',', ':'))


def digest(statement: str) -> str:
  """Returns the SHA-256 of a statement, in hexadecimal digits."""
  return hashlib.sha256(statement.encode()).hexdigest()
