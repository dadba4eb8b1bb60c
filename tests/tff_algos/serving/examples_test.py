"""Requests of Classify and Regress, and their answers in JSON."""

import types

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.serving import examples, server_config


def test_values_by_their_kind():
  (example,) = examples.from_json(
    {
      'examples': [
        {
          'text': 'çay',
          'bytes': [{'b64': '/w=='}, 'b'],
          'whole': 3,
          'number': [1, 2.5],
          'age': 31,
          'none': [],
        }
      ]
    },
    numbers={'age'},
    max_rows=9,
  )
  found = example.features.feature
  assert found['text'].bytes_list.value == ['çay'.encode()]
  assert found['bytes'].bytes_list.value == [b'\xff', b'b']
  assert found['whole'].int64_list.value == [3]
  assert found['number'].float_list.value == [1, 2.5]
  assert found['age'].float_list.value == [31]
  assert not found['none'].bytes_list.value


@pytest.mark.parametrize(
  ('request_', 'text'),
  [
    ({'examples': {}}, "'examples' must be a list that is not empty"),
    ({'examples': [3]}, "element 0 of 'examples' must be an object"),
    ({'examples': [{}], 'context': []}, "'context' must be an object"),
    (
      {'examples': [{}, {'a': 1}], 'context': {'a': 2}},
      "element 1 of 'examples' and 'context' both have the feature 'a'",
    ),
    ({'examples': [{'a': None}]}, "feature 'a' of element 0.*must be a number"),
    ({'examples': [{'a': [True]}]}, 'must be a number, a string'),
    ({'examples': [{'a': ['x', 1]}]}, 'must be a number, a string'),
    ({'examples': [{'a': {'b': ''}}]}, 'must hold strings or'),
    ({'examples': [{'a': {'b64': '*'}}]}, 'must hold strings or'),
    ({'examples': [{'a': '\ud800'}]}, 'must be UTF-8'),
    ({'examples': [{'\ud800': 1}]}, 'must be UTF-8'),
    ({'examples': [{'a': 2**63}]}, 'no int64'),
    ({'examples': [{'a': [0.5, 10**400]}]}, 'no float'),
  ],
)
def test_malformed_requests(request_, text):
  with pytest.raises(errors.RequestError, match=text):
    examples.from_json(request_, numbers=(), max_rows=9)


def test_regressions():
  asked = []

  def predict(name, inputs):
    asked.append((name, inputs['inputs'].tolist()))
    return {'outputs': np.float32([[0.5], [2]])}

  model = types.SimpleNamespace(
    name='m',
    signature=lambda name: types.SimpleNamespace(
      method_name=f'tensorflow/serving/{name}', outputs={}
    ),
    predict=predict,
  )
  rows = examples.from_json(
    {'examples': [{'a': 0.5}, {}]}, numbers=(), max_rows=9
  )
  question = examples.ask(
    model,
    examples.REGRESS,
    '',
    rows,
    server_config.ServerConfig(),
    examples.regressions,
  )
  assert question.answer() == [0.5, 2]
  assert asked == [('regress', [one.SerializeToString() for one in rows])]
  outputs = {'outputs': np.zeros(1)}
  with pytest.raises(errors.RequestError, match='answer with scores and class'):
    examples.classifications(outputs)
  with pytest.raises(
    errors.RequestError, match='must answer with outputs, got'
  ):
    examples.regressions({'a': np.zeros(1)})
