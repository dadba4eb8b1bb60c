r"""Trains an experiment on the dataset in its workdir.

  python -m binaries.train --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

needs <workdir>/dataset (binaries.preprocess makes it) and writes metrics.csv,
TensorBoard logs and checkpoints there. Run it again to go on after an
interruption: it resumes from the latest checkpoint and ends in the same state.
"""

from absl import logging

from binaries import command, experiment, session
from tff_algos.runtimes import loop, metrics_log, workdir

_SHOWN = {
  'train/loss': 'loss',
  'participating/validation/personalized/accuracy': 'accuracy',
  'participating/validation/personalized/mse': 'mse',
}


def train(config: experiment.ExperimentConfig, folder: str) -> int:
  """Trains to the last round; returns its number.

  Raises:
    UserError: If the config, the dataset or the workdir does not allow it.
  """
  with (
    workdir.lock(folder),
    session.open_session(config, folder) as opened,
    metrics_log.MetricsLog(folder, config.training.num_rounds, _SHOWN) as log,
  ):
    opened.checkpoints.remove_unfinished()
    experiment.write_config(config, folder)
    result = loop.train(
      opened.algorithm,
      opened.runtime,
      opened.source,
      opened.store,
      opened.checkpoints,
      opened.evaluator,
      log,
      config.training,
      config.seed,
    )
  logging.info('Trained %d rounds in %s.', result.round_num, folder)
  return result.round_num


def _main() -> None:
  config, workdir_flag = command.define_experiment_flags()
  command.run(lambda: train(experiment.parse(config.value), workdir_flag.value))


if __name__ == '__main__':
  _main()
