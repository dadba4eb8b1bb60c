"""Requests that are answered together, each as if it were alone."""

import types

import numpy as np
import pytest

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.serving import (
  access,
  batching,
  examples,
  served_model,
  server_config,
)

CONFIG = server_config.ServerConfig()
X = exportable.sample_inputs(40)
B_2 = access.Caller(client_id='b/2')
# Of the largest output: a product of more rows may be summed in another order.
TOLERANCE = 1e-6


@pytest.fixture(name='runs')
def make_runs(monkeypatch):
  """The number of rows of each call of a model."""
  rows = []
  original = served_model.ServedModel.run

  def run(self, name, inputs):
    rows.append(len(next(iter(inputs.values()))))
    return original(self, name, inputs)

  monkeypatch.setattr(served_model.ServedModel, 'run', run)
  return rows


def ask(model, name='serving_default', **inputs):
  """Returns a question whose answer is the outputs themselves."""
  arrays = {key: np.asarray(value) for key, value in inputs.items()}
  return batching.Question(model, name, arrays, lambda outputs: outputs)


def answer(questions, config=CONFIG):
  answers = [None] * len(questions)
  for positions in batching.batches(questions, config):
    batch = batching.answer_batch([questions[i] for i in positions])
    for i, one in zip(positions, batch, strict=True):
      answers[i] = one
  return answers


def check_as_alone(questions, answers):
  for question, outputs in zip(questions, answers, strict=True):
    alone = question.answer()
    assert set(outputs) == set(alone)
    for name, expected in alone.items():
      assert outputs[name].shape == expected.shape
      if expected.dtype.kind == 'f':
        atol = TOLERANCE * np.abs(expected).max()
        np.testing.assert_allclose(outputs[name], expected, rtol=0, atol=atol)
      else:
        np.testing.assert_array_equal(outputs[name], expected)


def test_answers_are_those_of_each_alone(full_store, runs):
  clusters, clients = (
    full_store.get('cluster_models'),
    full_store.get('personalized_models'),
  )
  ids = np.array(exportable.CLIENT_IDS, object)
  shares = np.float32([[0.25, 0.75]])
  questions = []
  for i, rows in enumerate((1, 3, 2, 7, 1)):
    x = X[i : i + rows]
    numbers = np.arange(i, i + rows)
    questions += [
      ask(clusters, x=x, cluster_id=np.int32(numbers % 2)),
      ask(clients, x=x, client_id=ids[numbers % 4]),
      ask(clusters, 'predict_mixture', x=x, mixture=shares.repeat(rows, 0)),
      ask(
        clients,
        'serving_raw',
        client_id=ids[numbers % 4],
        **{column: x[:, j] for j, column in enumerate('abcd')},
      ),
    ]
  answers = answer(questions)
  assert runs == [14] * 4
  check_as_alone(questions, answers)


def test_examples_are_joined(full_store, runs):
  listed = examples.from_json(
    {
      'examples': [
        {'client_id': name, 'a': 1.5, 'b': -1.0, 'c': 0.5, 'd': 2.0}
        for name in ('anna', 'b/2')
      ]
    },
    numbers='abcd',
    config=server_config.ServerConfig(),
  )
  model = full_store.get('personalized_models')
  questions = [
    ask(model, 'classify', inputs=np.array([one.SerializeToString()], object))
    for one in listed
  ]
  answers = answer(questions)
  assert runs == [2]
  check_as_alone(questions, answers)


def test_each_sees_its_own_mistake_alone(full_store):
  clusters, clients = (
    full_store.get('cluster_models'),
    full_store.get('personalized_models'),
  )
  good = [
    ask(clusters, x=X[:2], cluster_id=np.int32([0, 1])),
    ask(clients, x=X[:1], client_id=['anna']),
  ]
  bad = [
    ask(clusters, x=X[:3], cluster_id=np.int32([0, 1, 5])),
    # Joined with the next, both columns would have five rows.
    ask(clusters, x=X[:3], cluster_id=np.int32([0, 1])),
    ask(clusters, x=X[:2], cluster_id=np.int32([1, 1, 1])),
    ask(clients, x=X[:1], client_id=['bob']),
    ask(full_store.seen_by(B_2).get(clients.name), x=X[:1], client_id=['anna']),
  ]
  answers = answer([*bad[:2], *good, *bad[2:]])
  check_as_alone(good, answers[2:4])
  refusals = [str(error) for error in answers[:2] + answers[4:]]
  assert refusals == [
    'cluster_id must be from 0 to 1, got 5 in row 2',
    *(
      'cluster_id must have one row for each example: it has '
      f'{rows}, and the number of examples is {5 - rows}'
      for rows in (2, 3)
    ),
    'unknown client id bob; this model serves the 4 clients that took part in '
    'training. The model cluster_models serves others',
    "this token is for the model of client 'b/2' alone",
  ]
  assert [error.status for error in answers[4:]] == [400, 404, 403]


def test_a_client_is_not_answered_for_another(full_store, runs):
  """Nor by a batch that somebody else has begun, who may ask for it."""
  for_all = full_store.get('personalized_models')
  for_one = full_store.seen_by(B_2).get('personalized_models')
  questions = [
    ask(for_all, x=X[:1], client_id=['anna']),
    ask(for_one, x=X[:1], client_id=['anna']),
    ask(for_one, x=X[:1], client_id=['b/2']),
  ]
  first, refused, own = answer(questions)
  check_as_alone([questions[0], questions[2]], [first, own])
  assert isinstance(refused, errors.RequestError)
  assert refused.status == 403
  del runs[:]
  check = answer([questions[0], questions[2]])
  assert runs == [2]
  check_as_alone([questions[0], questions[2]], check)


def test_examples_of_different_clients_never_pick_a_cluster_together(
  full_store, runs
):
  model = full_store.get('cluster_models')
  questions = [
    ask(model, 'pick_cluster', x=X[i : i + 3], label=np.int32([0, 1, 2]))
    for i in (0, 5)
  ]
  answers = answer(questions)
  assert runs == [3, 3]
  check_as_alone(questions, answers)
  assert {'pick_cluster', 'pick_cluster_raw'} == {
    name for name in model.signature_defs if name.startswith('pick_cluster')
  } - model.row_wise


def test_other_models_and_signatures_are_not_joined(full_store, runs):
  clusters = full_store.get('cluster_models')
  inputs = {'x': X[:1], 'cluster_id': np.int32([0])}
  questions = [
    ask(clusters, **inputs),
    ask(clusters, 'predict_cluster', **inputs),
    ask(full_store.get('anna'), x=X[:1]),
  ]
  check_as_alone(questions, answer(questions))
  assert runs[:3] == [1, 1, 1]


def test_signatures_of_somebody_else_are_not_joined():
  """Their rows may depend on each other."""
  model = types.SimpleNamespace(row_wise=frozenset(), key=1)
  questions = [ask(model, x=X[:1]), ask(model, x=X[:1])]
  assert list(batching._key(q, i) for i, q in enumerate(questions)) == [0, 1]


@pytest.mark.parametrize(
  'config',
  [
    CONFIG._replace(max_rows=5),
    # A row has 28 bytes of outputs, and 20 of inputs.
    CONFIG._replace(max_request_bytes=5 * 28),
  ],
)
def test_a_batch_has_the_limits_of_a_request(full_store, config):
  model = full_store.get('cluster_models')
  questions = [
    ask(model, x=X[:rows], cluster_id=np.zeros(rows, np.int32))
    for rows in (3, 2, 4, 1, 4)
  ]
  found = list(batching.batches(questions, config))
  assert found == [[0, 1], [2, 3], [4]]
  assert list(batching.batches(questions, CONFIG)) == [[0, 1, 2, 3, 4]]


def test_inputs_of_a_batch_are_no_larger_than_a_request():
  model = types.SimpleNamespace(
    row_wise={'serving_default'},
    key=1,
    signature=lambda name: types.SimpleNamespace(outputs={}),
  )
  questions = [ask(model, x=X[:rows]) for rows in (3, 2, 4, 1, 4)]
  config = CONFIG._replace(max_request_bytes=5 * 16)
  found = list(batching.batches(questions, config))
  assert found == [[0, 1], [2, 3], [4]]
  texts = np.array([b'ab', b'', b'cde'], object)
  assert ask(model, x=X[:3], client_id=texts).num_bytes == 3 * 16 + 5


def test_an_unexpected_error_is_of_each(full_store, monkeypatch):
  def run(self, name, inputs):
    raise KeyError(name)

  monkeypatch.setattr(served_model.ServedModel, 'run', run)
  model = full_store.get('anna')
  answers = answer([ask(model, x=X[:1]), ask(model, x=X[:1])])
  assert [type(one) for one in answers] == [KeyError] * 2
