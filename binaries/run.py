r"""Runs an experiment whole, from raw data to a served prediction.

  python -m binaries.run --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

is preprocess, train, evaluate and export one after the other, and then proves
the result: it starts binaries.serve on free loopback ports, lets a client
process (binaries.predict) ask it over HTTP, and ends the server again.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from absl import logging

from binaries import command, evaluate, experiment, export, preprocess, train
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.reports import page, summary

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0


def run(config: experiment.ExperimentConfig, folder: str) -> None:
  """Runs all steps in a workdir; each goes on where an earlier run stopped.

  Raises:
    UserError: If a step is refused; the steps before it keep their results.
  """
  logging.info('1/5 dataset')
  preprocess.preprocess(config.dataset, folder, '')
  logging.info('2/5 training')
  train.train(config, folder)
  logging.info('3/5 evaluation')
  evaluate.evaluate(config, folder)
  logging.info('4/5 export')
  bundles = export.export(config, folder)
  index = page.write_report(folder)  # Again, for its links to the bundles.
  logging.info('5/5 a prediction from a server')
  answer = _ask_server(folder)
  places = {
    'dataset': pathlib.Path(folder, 'dataset'),
    'metrics': pathlib.Path(folder, 'metrics.csv'),
    'checkpoints': pathlib.Path(folder, 'checkpoints'),
    **{bundle.parent.name.replace('_', ' '): bundle for bundle in bundles},
    'report': index,
  }
  lines = [summary.console_summary(folder), '', answer, '']
  lines += [f'{name:>20}  {path}' for name, path in places.items()]
  print('\n'.join(lines), flush=True)


def _ask_server(folder: str) -> str:
  """Returns a sentence about one held-out example of one client."""
  with experiment.open_dataset(folder) as dataset:
    client_id = dataset.client_ids[0]
    examples = dataset.examples(client_id, schema.TEST)
    if not examples.num_examples:
      examples = dataset.examples(client_id, schema.TRAIN)
  instance = {'client_id': client_id, 'x': examples.x[0].tolist()}
  with _server(folder) as url, tempfile.NamedTemporaryFile('w') as request:
    json.dump([instance], request)
    request.flush()
    asked = subprocess.run(
      [
        *(sys.executable, '-m', 'binaries.predict'),
        f'--url={url}',
        '--model=personalized_models',
        f'--request_file={request.name}',
      ],
      stdout=subprocess.PIPE,
      text=True,
      check=False,
      timeout=_START_SECONDS,
    )
  if asked.returncode:
    raise errors.UserError(
      f'the client process ended with status {asked.returncode}; its own words '
      'stand above'
    )
  prediction = json.loads(asked.stdout)['predictions'][0]
  said = prediction.get('class_id', prediction.get('prediction'))
  return (
    f'Asked over HTTP, the model of client {client_id} says {said} for an '
    f'example whose label is {examples.y[0]:g}.'
  )


@contextlib.contextmanager
def _server(folder: str) -> Iterator[str]:
  """Runs a server process for the block; yields its URL."""
  with tempfile.TemporaryDirectory() as temporary:
    port_file = pathlib.Path(temporary, 'ports.json')
    process = subprocess.Popen(
      [
        *(sys.executable, '-m', 'binaries.serve', f'--workdir={folder}'),
        *('--rest_api_port=0', '--port=0', f'--port_file={port_file}'),
      ]
    )
    try:
      deadline = time.monotonic() + _START_SECONDS
      while not port_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
          raise errors.UserError(
            'the prediction server did not start; its own words stand above'
          )
        time.sleep(0.1)
      port = json.loads(port_file.read_text())['rest_api_port']
      yield f'http://127.0.0.1:{port}'
    finally:
      process.terminate()
      try:
        process.wait(_STOP_SECONDS)
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  command.run(lambda: run(experiment.parse(config.value), workdir.value))


if __name__ == '__main__':
  _main()
