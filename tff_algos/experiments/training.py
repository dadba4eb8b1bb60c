"""Training of an experiment on the dataset in its workdir."""

import contextlib
import os

from absl import logging

from tff_algos.experiments import (
  auditing,
  experiment,
  resolved_config,
  runtime_cache,
  session,
)
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.training import loop, metrics_log, workdir

_SHOWN = {
  'train/loss': 'loss',
  'joint/loss': 'loss',
  'shared/loss': 'loss',
  'participating/validation/personalized/accuracy': (
    'personalized validation accuracy'
  ),
  'participating/validation/personalized/mse': 'personalized validation mse',
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
    UserError: If the config, the dataset or the workdir does not allow it, or
      another process is lost.
  """
  with contextlib.ExitStack() as stack:
    if cluster.is_leader:
      stack.enter_context(workdir.lock(folder))
    opened = stack.enter_context(
      session.open_session(config, folder, cluster, kept)
    )
    observer, runtime = _Silent(), opened.runtime
    if cluster.is_leader:
      observer = stack.enter_context(
        metrics_log.MetricsLog(folder, config.training.num_rounds, _SHOWN)
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
  logging.info('Trained %d rounds in %s.', result.round_num, folder)
  return result.round_num
