r"""Runs an experiment whole, from raw data to a served prediction.

  python -m binaries.run --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

is preprocess, train, evaluate and export one after the other, and then proves
the result: it starts binaries.serve on free loopback ports, lets a client
process (binaries.predict) ask it over HTTP, and ends the server again.
"""

import pathlib

from absl import logging

from binaries import card, command, evaluate, export, preprocess, train
from tff_algos.experiments import experiment, runtime_cache, served_prediction
from tff_algos.reports.run import page, summary


def run(config: experiment.ExperimentConfig, folder: str) -> None:
  """Runs all steps in a workdir; each goes on where an earlier run stopped.

  Raises:
    UserError: If a step is refused; the steps before it keep their results.
  """
  logging.info('1/5 dataset')
  preprocess.preprocess(config.dataset, folder, '')
  dataset_card = card.write_card(folder)
  logging.info('2/5 training')
  with runtime_cache.KeptRuntime() as kept:
    train.train(config, folder, kept=kept)
    logging.info('3/5 evaluation')
    evaluate.evaluate(config, folder, kept=kept)
  logging.info('4/5 export')
  bundles = export.export(config, folder)
  index = page.write_report(folder)  # Again, for its links to the bundles.
  logging.info('5/5 a prediction from a server')
  answer = served_prediction.ask(folder)
  places = {
    'dataset': pathlib.Path(folder, 'dataset'),
    'dataset card': dataset_card,
    'metrics': pathlib.Path(folder, 'metrics.csv'),
    'checkpoints': pathlib.Path(folder, 'checkpoints'),
    **{bundle.parent.name.replace('_', ' '): bundle for bundle in bundles},
    'report': index,
  }
  lines = [summary.console_summary(folder), '', answer, '']
  lines += [f'{name:>20}  {path}' for name, path in places.items()]
  print('\n'.join(lines), flush=True)


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  command.run(lambda: run(experiment.parse(config.value), workdir.value))


if __name__ == '__main__':
  _main()
