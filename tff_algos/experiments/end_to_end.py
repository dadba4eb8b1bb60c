"""End-to-end run of an experiment, from raw data to a served prediction."""

import os
import pathlib
from collections.abc import Callable

from absl import logging

from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  exporting,
  runtime_cache,
  served_prediction,
  training,
)
from tff_algos.reports.run import summary


def run(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  on_checkpoint: Callable[[], object] | None = None,
) -> str:
  """Runs all steps in a workdir; each resumes an earlier, interrupted run.

  But for the export: every call releases one more version.

  Args:
    config: The experiment.
    folder: Its workdir.
    on_checkpoint: As of `training.train`.

  Returns:
    The scores, a served prediction, and the path of every result, as text.

  Raises:
    UserError: If a step is refused; the steps before it keep their results.
  """
  logging.info('1/5 dataset')
  datasets.build(config.dataset, folder)
  logging.info('2/5 training')
  with runtime_cache.KeptRuntime() as kept:
    training.train(config, folder, kept=kept, on_checkpoint=on_checkpoint)
    logging.info('3/5 evaluation')
    evaluating.evaluate(config, folder, kept=kept)
    logging.info('4/5 export')
    bundles = exporting.export(config, folder, kept=kept)
  logging.info('5/5 a prediction from a server')
  with served_prediction.asking(folder) as ask:
    # While the server starts, which takes as long.
    dataset_card = datasets.write_card(folder)
    index = evaluating.write_report(config, folder)
    answer = ask()
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
  return '\n'.join(lines)
