"""Batches of requests: one call of TensorFlow answers those that wait.

Requests for the same signature of the same version are joined, row by row, and
the answers are split. A signature qualifies if each row of its answer depends
on that row of the request alone (`ServedModel.row_wise`): `pick_cluster`, whose
rows are one client's, does not.
"""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tff_algos.core import errors
from tff_algos.serving import served_model, server_config, tensors

_T = TypeVar('_T')
_Outputs = Mapping[str, np.ndarray]


class Question(NamedTuple):
  """A parsed request for a prediction.

  Attributes:
    model: The model, restricted to the client that asks.
    signature_name: Its signature.
    inputs: Inputs that fit the signature.
    respond: Outputs -> content of the answer.
  """

  model: served_model.ServedModel
  signature_name: str
  inputs: Mapping[str, np.ndarray]
  respond: Callable[[_Outputs], bytes]

  @property
  def num_bytes(self) -> int:
    """Returns the size of the inputs."""
    return sum(
      sum(map(len, value.flat)) if value.dtype.kind == 'O' else value.nbytes
      for value in self.inputs.values()
    )

  def answer(self) -> bytes:
    """Returns the answer.

    Raises:
      RequestError: If the model rejects the values.
    """
    return self.respond(self.model.predict(self.signature_name, self.inputs))


def finish(started: bytes | Question) -> bytes:
  """Returns an answer, or that to a question that is asked alone."""
  return started.answer() if isinstance(started, Question) else started


def batches(
  questions: Sequence[Question], config: server_config.ServerConfig
) -> Iterator[list[int]]:
  """Yields the positions of questions that are answered by one call.

  A batch is within the limits of one request.
  """
  groups: dict[Hashable, list[int]] = {}
  for i, question in enumerate(questions):
    groups.setdefault(_key(question, i), []).append(i)
  for positions in groups.values():
    first = questions[positions[0]]
    signature = first.model.signature(first.signature_name)
    max_rows = tensors.max_rows(signature, config)
    batch, rows, size = [], 0, 0
    for i in positions:
      rows += tensors.num_rows(questions[i].inputs)
      size += questions[i].num_bytes
      if batch and (rows > max_rows or size > config.max_request_bytes):
        yield batch
        batch, rows = [], tensors.num_rows(questions[i].inputs)
        size = questions[i].num_bytes
      batch.append(i)
    yield batch


def answer_batch(questions: Sequence[Question]) -> list[bytes | Exception]:
  """Returns the answers to a batch, or the errors that refuse them.

  What one request does wrong is never seen by another: where the batch is
  rejected, each is asked alone.
  """
  if len(questions) > 1:
    with contextlib.suppress(Exception):
      return _joined_answers(questions)
  return [attempt(question.answer) for question in questions]


def _joined_answers(questions: Sequence[Question]) -> list[bytes | Exception]:
  for question in questions:
    question.model.check_client(question.inputs)
  first = questions[0]
  outputs = first.model.run(
    first.signature_name,
    {
      name: np.concatenate([question.inputs[name] for question in questions])
      for name in first.inputs
    },
  )
  answers, start = [], 0
  for question in questions:
    rows = slice(start, start + tensors.num_rows(question.inputs))
    start = rows.stop
    own = {name: value[rows] for name, value in outputs.items()}
    answers.append(attempt(question.respond, own))
  return answers


def _key(question: Question, position: int) -> Hashable:
  """Returns what questions of a batch share; the position if it has no other.

  Columns of different numbers of rows are an error of their own request: joined
  with others, they would move the others' rows.
  """
  inputs = question.inputs
  if (
    question.signature_name not in question.model.row_wise
    or len({value.shape[0] for value in inputs.values()}) != 1
  ):
    return position
  return (
    question.model.key,
    question.signature_name,
    tuple((name, inputs[name].shape[1:]) for name in sorted(inputs)),
  )


def attempt(function: Callable[..., _T], *arguments: Any) -> _T | Exception:
  """Returns what a function returns, or the error that it raises."""
  try:
    return function(*arguments)
  except errors.RequestError as error:
    # Its frames refer to it: without them a refused call needs no garbage
    # collection, until which it would be one of gRPC's streams.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
  except Exception as error:
    return error
