"""Training of an experiment on the dataset in its workdir."""

import contextlib
import os

from absl import logging

from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import (
  auditing,
  experiment,
  resolved_config,
  runtime_cache,
  session,
)
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.training import loop, metrics_log, workdir

# Metric -> label in the progress bar.
_TRAINING = {
  f'{phase}/loss': 'training loss' for phase in ('train', 'joint', 'shared')
}
_VALIDATION = {
  f'participating/validation/personalized/{name}': (
    f'personalized validation {name}'
  )
  for name in ('accuracy', 'mse')
}


class _Silent:
  """Observer without output, for all processes but process 0."""

  def resume(self, round_num):
    """Returns."""

  def record(self, round_num, metrics, memberships=None):
    """Returns."""

  def persist(self):
    """Returns."""


def train(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  cluster: cluster_lib.Cluster = cluster_lib.ALONE,
  kept: runtime_cache.KeptRuntime | None = None,
) -> int:
  """Trains to the last round; returns its number.

  Args:
    config: The experiment.
    folder: Its workdir.
    cluster: Processes of a distributed run.
    kept: As in `session.open_session`.

  Raises:
    UserError: If the config, the dataset or the workdir does not allow it, such
      as a workdir trained for more rounds, or another process is lost.
  """
  with contextlib.ExitStack() as stack:
    if cluster.is_leader:
      stack.enter_context(workdir.lock(folder))
    opened = stack.enter_context(
      session.open_session(config, folder, cluster, kept)
    )
    done = _check_rounds(opened)
    observer, runtime = _Silent(), opened.runtime
    if cluster.is_leader:
      observer = stack.enter_context(
        metrics_log.MetricsLog(
          folder, config.training.num_rounds, shown_metrics(opened.dataset)
        )
      )
      observer, runtime = auditing.attend(config, folder, observer, runtime)
      resolved_config.write(config, folder)
    opened.checkpoints.remove_unfinished()
    result = loop.train(
      opened.algorithm,
      runtime,
      opened.source,
      opened.store,
      opened.checkpoints,
      opened.evaluator,
      observer,
      config.training,
      config.seed,
    )
  if done == result.round_num:
    logging.info('%s is at round %d, the last: nothing to train.', folder, done)
  else:
    logging.info('Trained %d rounds in %s.', result.round_num, folder)
  return result.round_num


def _check_rounds(opened: session.Session) -> int:
  """Returns the number of rounds that are trained already, 0 at the start.

  Raises:
    ConfigError: If there are more of them than the config has.
  """
  done = max(opened.checkpoints.rounds(), default=0)
  num_rounds = opened.config.training.num_rounds
  if done > num_rounds:
    raise errors.ConfigError(
      f'config.training.num_rounds is {num_rounds}, but {opened.workdir} is '
      f'trained for {done} rounds, and training never goes back. Set '
      f'--config.training.num_rounds={done} or more, or take another --workdir'
    )
  return done


def shown_metrics(dataset: dataset_lib.FederatedDataset) -> dict[str, str]:
  """Returns metric -> label in the progress bar."""
  if dataset.num_examples(schema.VALIDATION).any():
    return _TRAINING | _VALIDATION
  return _TRAINING
