"""Serving test of exported models with a server process."""

import contextlib
import http.client
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import experiment
from tff_algos.runtimes import child_process
from tff_algos.serving import clients

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0


@contextlib.contextmanager
def asking(folder: str | os.PathLike[str]) -> Generator[Callable[[], str]]:
  """Runs a server process for the block, without waiting for its start.

  Args:
    folder: A workdir with a dataset and exported models.

  Yields:
    A function that waits for the server and requests a prediction of one
    client's personalized model by HTTP. It returns a sentence with the
    prediction and the true label, or one that no client has examples, and
    raises UserError if the server does not start or refuses the request, and
    InfrastructureError if it takes too long to answer.

  Raises:
    DataError: If there is no dataset.
  """
  with experiment.open_dataset(folder) as dataset:
    found = _find_examples(dataset)
    classes = dataset.feature_spec.classes

  def ask() -> str:
    url = wait()
    if found is None:
      return 'No client has a test or training example to ask the server about.'
    client_id, examples = found
    said = _request(url, {'client_id': client_id, 'x': examples.x[0].tolist()})
    label = examples.y[0].tolist()
    return (
      f'Asked over HTTP, the model of client {client_id} says '
      f'{spell(said, classes)} for an example whose label is '
      f'{spell(label, classes)}.'
    )

  with _server(folder) as wait:
    yield ask


def _find_examples(
  dataset: dataset_lib.FederatedDataset,
) -> tuple[str, schema.Examples] | None:
  """Returns the first client with test or training examples, and those."""
  for client_id in dataset.client_ids:
    for split in (schema.TEST, schema.TRAIN):
      examples = dataset.examples(client_id, split)
      if examples.num_examples:
        return client_id, examples
  return None


def _request(url: str, instance: dict[str, Any]) -> Any:
  """Returns the prediction of the client's personalized model."""
  server = clients.Server(url, timeout_seconds=_START_SECONDS)
  body = json.dumps({'instances': [instance]}).encode()
  try:
    with clients.rest(server, '/v1/models/personalized_models:predict') as ask:
      prediction = json.loads(ask(body))['predictions'][0]
  except errors.RequestError as error:
    raise errors.UserError(
      f'the prediction server answers {error.status}: {error}'
    ) from None
  except (OSError, http.client.HTTPException) as error:
    raise errors.InfrastructureError(
      f'the prediction server did not answer within {_START_SECONDS:g} '
      f'seconds, or has ended ({error}); try again when the machine has less '
      'to do'
    ) from None
  # A single output has no name in the response, as in TensorFlow Serving.
  return prediction['class_id'] if isinstance(prediction, dict) else prediction


def spell(value: Any, classes: Sequence[str]) -> str:
  """Returns a label in words.

  Args:
    value: A number, None for one that is not finite, a class, or a list of the
      classes at several places.
    classes: Names of the classes; empty if they have none.
  """
  if isinstance(value, list):
    return ' '.join(spell(one, classes) for one in value)
  if value is None:
    return 'no finite number'
  return classes[int(value)] if 0 <= value < len(classes) else f'{value:g}'


@contextlib.contextmanager
def _server(folder: str | os.PathLike[str]) -> Generator[Callable[[], str]]:
  """Runs a server process for the block; yields a wait for its URL."""
  with tempfile.TemporaryDirectory() as temporary:
    port_file = pathlib.Path(temporary, 'ports.json')
    process = child_process.ChildProcess(
      'prediction server',
      [
        *(sys.executable, '-m', 'binaries.serve', f'--workdir={folder}'),
        *('--rest_api_port=0', '--port=0', f'--port_file={port_file}'),
      ],
      env={},
      grace_seconds=_STOP_SECONDS,
    )

    def wait() -> str:
      deadline = time.monotonic() + _START_SECONDS
      while not port_file.exists():
        is_slow = time.monotonic() > deadline
        if is_slow or not process.is_running:
          process.wait()
          # A busy machine may be in time when it is asked again.
          kind = errors.InfrastructureError if is_slow else errors.UserError
          raise kind(
            'the prediction server did not start'
            + f' within {_START_SECONDS:g} s' * is_slow
            + f'. It said:\n{process.tail() or "(nothing)"}'
          )
        time.sleep(0.1)
      port = json.loads(port_file.read_text())['rest_api_port']
      return f'http://127.0.0.1:{port}'

    try:
      process.start()
      yield wait
    finally:
      process.end()
