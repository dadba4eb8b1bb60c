"""Requests of Classify and Regress, and their answers in JSON."""

import types

import numpy as np
import pytest
from tensorflow_serving.apis import input_pb2

from tff_algos.core import errors
from tff_algos.serving import examples, server_config

CONFIG = server_config.ServerConfig(max_rows=9, max_request_bytes=1000)


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
    config=CONFIG,
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
    ({'examples': [{'a': {'b': ''}}]}, 'must hold UTF-8 strings or'),
    ({'examples': [{'a': {'b64': '*'}}]}, 'must hold UTF-8 strings or'),
    ({'examples': [{'a': '\ud800'}]}, 'must hold UTF-8 strings or'),
    ({'examples': [{'a': 2**63}]}, 'no int64'),
    ({'examples': [{'a': [0.5, 10**400]}]}, 'no float'),
  ],
)
def test_malformed_requests(request_, text):
  with pytest.raises(errors.RequestError, match=text):
    examples.from_json(request_, numbers=(), config=CONFIG)


def test_a_context_counts_for_each_example():
  request = {'examples': [{}] * 9, 'context': {'a': 'b' * 80}}
  assert len(examples.from_json(request, numbers=(), config=CONFIG)) == 9
  request['context'] = {'a': 'b' * 9000}
  listed = input_pb2.Input()
  shared = listed.example_list_with_context.context.features.feature['a']
  shared.bytes_list.value.append(b'b' * 9000)
  for _ in range(9):
    listed.example_list_with_context.examples.add()
  for ask in (
    lambda: examples.from_json(request, numbers=(), config=CONFIG),
    lambda: examples.from_input(listed, CONFIG),
  ):
    with pytest.raises(
      errors.RequestError, match='context of 9 examples has 81'
    ) as error:
      ask()
    assert error.value.status == 413
  # A large request has the time of its lane.
  request['examples'] = [{'c': 'd' * 9000}] * 9
  assert len(examples.from_json(request, numbers=(), config=CONFIG)) == 9


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
    {'examples': [{'a': 0.5}, {}]}, numbers=(), config=CONFIG
  )
  question = examples.ask(
    model,
    examples.REGRESS,
    'regress',
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
