"""What is voted on: two results have one digest if they are the same bits."""

import hashlib

import numpy as np
import pytest

from tff_algos.algorithms.cmfl.consensus import statements
from tff_algos.core import errors


def test_digest_by_hand():
  array = np.asarray([[1.0], [2.0]], np.float32)
  expected = hashlib.sha256(
    b'["bias", "<f4", [2, 1]]\n\x00\x00\x80\x3f\x00\x00\x00\x40'
  ).hexdigest()
  assert statements.digest_arrays({'bias': array}) == expected


def test_digest_asks_for_neither_order_nor_layout():
  one, other = np.arange(6.0).reshape(2, 3), np.float32(0)
  digest = statements.digest_arrays({'a': one, 'b': other})
  assert digest == statements.digest_arrays({'b': other, 'a': one})
  turned = np.asfortranarray(one)
  assert digest == statements.digest_arrays({'a': turned, 'b': other})
  swapped = one.astype('>f8')
  assert digest == statements.digest_arrays({'a': swapped, 'b': other})


@pytest.mark.parametrize(
  'other',
  [
    {'a': np.asarray([0.0, -0.0])},
    {'a': np.asarray([0.0, 5e-324])},
    {'a': np.asarray([[0.0, 0.0]])},
    {'a': np.zeros(2, np.int64)},
    {'b': np.zeros(2)},
    {'a': np.zeros(1), 'b': np.zeros(1)},
    {},
  ],
)
def test_digest_tells_apart(other):
  digest = statements.digest_arrays({'a': np.zeros(2)})
  assert digest != statements.digest_arrays(other)


def test_objects_have_no_digest():
  with pytest.raises(errors.ConfigError, match='weights has dtype object'):
    statements.digest_arrays({'weights': np.asarray([None])})


def test_a_statement_is_of_a_set():
  statement = statements.state(['b', 'a'], 'd1')
  assert statement == '{"client_ids":["a","b"],"result":"d1"}'
  assert statement == statements.state(iter(['a', 'b']), 'd1')
  assert statements.state(['a']) == '{"client_ids":["a"],"result":""}'


def test_digest_of_a_statement_is_its_sha256():
  # The well-known digest of nothing.
  assert statements.digest('').startswith('e3b0c44298fc1c149afbf4c8996fb924')
