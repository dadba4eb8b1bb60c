"""Training of an experiment on the dataset in its workdir."""

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from pipelines import options
from tff_algos.core import checks, errors, records
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import drift
from tff_algos.experiments import (
  auditing,
  experiment,
  provenance,
  resolved_config,
  runtime_cache,
  session,
)
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.runtimes.distributed import process_cluster as cluster_lib
from tff_algos.runtimes.pjrt import pjrt_runtime
from tff_algos.stores import objects
from tff_algos.training import (
  continuation,
  loop,
  metrics_log,
  selection,
  workdir,
)

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

# Prefix of keys of a dataset's recipe.
_SOURCE = 'source.options.'
# Whoever sees the models of a private run can try as many seeds.
_GUESSABLE_SEEDS = 1 << 32

# Receives the round and its metrics, name -> value.
Callback = Callable[[int, Mapping[str, float]], object]


class _Silent:
  """Observer without output, for all processes but process 0."""

  def resume(self, round_num, entries):
    """Returns."""

  def record(self, round_num, metrics, memberships=None):
    """Returns."""

  def persist(self):
    """Returns no entries."""
    return {}


class _Calling:
  """Observer that calls functions after the observer that it wraps."""

  def __init__(
    self,
    observer: loop.Observer,
    on_resume: Sequence[Callable[[int], object]],
    on_record: Sequence[Callback],
  ):
    """Takes the observer, and the functions that follow each of its methods."""
    self._observer = observer
    self._on_resume = on_resume
    self._on_record = on_record

  def resume(self, round_num: int, entries: records.Entries) -> None:
    """Forwards the call, then calls the functions."""
    self._observer.resume(round_num, entries)
    for callback in self._on_resume:
      callback(round_num)

  def record(
    self, round_num: int, metrics: Mapping[str, float], memberships: Any = None
  ) -> None:
    """Forwards the call, then calls the functions."""
    self._observer.record(round_num, metrics, memberships)
    for callback in self._on_record:
      callback(round_num, metrics)

  def persist(self) -> records.Entries:
    """Forwards the call."""
    return self._observer.persist()


def train(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  cluster: cluster_lib.Cluster = cluster_lib.ALONE,
  kept: runtime_cache.KeptRuntime | None = None,
  parent: str | os.PathLike[str] = '',
  callbacks: Sequence[Callback] = (),
  shows_progress: bool = True,
  on_checkpoint: Callable[[], object] | None = None,
) -> int:
  """Trains to the last round, or until early stopping; returns the round.

  Args:
    config: The experiment.
    folder: Its workdir, a local folder.
    cluster: Processes of a distributed run.
    kept: As in `session.open_session`.
    parent: Workdir of a run to continue, `ContinuationConfig.parent`; empty for
      that of the config.
    callbacks: Called after each round; 0 is the initial state. An error in one
      ends the training before the round is committed: it is run again.
    shows_progress: Whether to draw a progress bar on stderr.
    on_checkpoint: Called after each checkpoint; an error in it ends the
      training, which goes on from there.

  Raises:
    UserError: If the config, the dataset or the workdir does not allow it, such
      as a workdir trained for more rounds, or another process is lost.
  """
  objects.check_local('workdir', folder)  # Before the lock makes a folder.
  if cluster.addresses and (
    parent or config.continuation.parent or continuation.read_parent(folder)
  ):
    raise errors.ConfigError(
      'a run cannot continue another one with several processes; leave '
      'TF_CONFIG out'
    )
  if config.privacy.is_on and config.seed < _GUESSABLE_SEEDS:
    logging.warning(
      'config.seed=%d can be guessed, and the noise follows from it: before '
      'models are published, train with a random one, such as '
      'secrets.randbits(63) of Python.',
      config.seed,
    )
  with contextlib.ExitStack() as stack:
    if cluster.is_leader:
      stack.enter_context(workdir.lock(folder))
    opened = stack.enter_context(
      session.open_session(config, folder, cluster, kept, parent)
    )
    done = _check_rounds(opened)
    _check_selection(opened, done)
    if done < opened.training.num_rounds:
      _check_patience(opened)
      _check_personalization(opened)
    opened.checkpoints.on_saved = on_checkpoint
    opened.checkpoints.remove_unfinished()
    if opened.parent and not done:
      _move_states(opened)
    observer, runtime = _Silent(), opened.runtime
    if cluster.is_leader:
      _check_recipe(config.dataset, opened.dataset)
      observer = stack.enter_context(
        metrics_log.MetricsLog(
          folder,
          opened.training.num_rounds,
          shown_metrics(opened.dataset),
          first_round=_first_round(opened),
          shows_progress=shows_progress,
        )
      )
      observer, runtime = auditing.attend(config, folder, observer, runtime)
      tracker = stack.enter_context(tracking.opened(config, folder))
      on_resume: list[Callable[[int], object]] = []
      on_record = [*callbacks]
      if tracker is not None:
        on_resume = [
          tracker.resume,
          lambda _: tracking.remember(config, folder, tracker),
        ]
        on_record.insert(0, tracker.record)
      observer = _Calling(observer, on_resume, on_record)
      accelerator = ''
      if isinstance(opened.runtime, pjrt_runtime.PjrtRuntime):
        accelerator = opened.runtime.accelerator
      has_rounds_left = done < opened.training.num_rounds
      resolved_config.write(
        config,
        folder,
        opened.checkpoints.run_identity,
        provenance.describe(accelerator) if has_rounds_left else None,
      )
    result = loop.train(
      opened.algorithm,
      runtime,
      opened.source,
      opened.store,
      opened.checkpoints,
      opened.evaluator,
      observer,
      opened.training,
      config.seed,
    )
    last = opened.training.num_rounds
  if done == result.round_num == last:
    logging.info('%s is at round %d, the last: nothing to train.', folder, done)
  elif result.round_num < last and loop.is_spent(
    opened.algorithm, result.server_state
  ):
    logging.info(
      'Ended after round %d of %d in %s: another round would exceed '
      'config.privacy.target_epsilon, %g.',
      result.round_num,
      last,
      folder,
      config.privacy.target_epsilon,
    )
  elif result.round_num < last:
    logging.info(
      'Stopped early after round %d of %d in %s: '
      'no better %s in %d evaluations.',
      result.round_num,
      last,
      folder,
      config.training.selection.metric or 'validation score',
      config.training.selection.patience,
    )
  else:
    logging.info(
      'Trained %d rounds in %s.',
      result.round_num - _first_round(opened),
      folder,
    )
  return result.round_num


def _check_rounds(opened: session.Session) -> int:
  """Returns the number of rounds that are trained already, 0 at the start.

  Raises:
    ConfigError: If there are more of them than the config has.
    CheckpointError: If they are those of another experiment.
  """
  done = max(opened.checkpoints.rounds(), default=0)
  first, last = _first_round(opened), opened.training.num_rounds
  if done > last:
    raise errors.ConfigError(
      f'config.training.num_rounds is {last - first}, but {opened.workdir} is '
      f'trained for {done - first} rounds, and training never goes back. Set '
      f'--config.training.num_rounds={done - first} or more, or take another '
      '--workdir'
    )
  if done:
    # Before anything is written: config.json would be of another run.
    opened.checkpoints.check_identity(done)
  return done


def _check_selection(opened: session.Session, done: int) -> None:
  """Raises ConfigError if the best round so far was chosen by another rule."""
  before = opened.checkpoints.progress(done).rule if done else ''
  now = selection.rule_of(
    opened.training.selection, opened.evaluator.selection_metric
  )
  if before not in ('', now):
    raise errors.ConfigError(
      f'config.training.selection takes the round of the {now}, but '
      f'{opened.workdir} is trained for {done - _first_round(opened)} rounds '
      f'with the {before}, whose values do not compare. Set metric and mode as '
      'they were, or take another --workdir'
    )


def _check_patience(opened: session.Session) -> None:
  """Raises ConfigError if early stopping waits for scores of no examples."""
  config = opened.training.selection
  metric = config.metric or opened.evaluator.selection_metric
  if (
    config.patience
    and schema.VALIDATION in metric.split('/')
    and not opened.dataset.num_examples(schema.VALIDATION).any()
  ):
    raise errors.ConfigError(
      f'config.training.selection.patience is {config.patience}, but no client '
      f'has validation examples: {metric} is never a number, and training '
      'would not stop early. Set config.dataset.splits.validation_ratio above '
      '0, config.training.selection.metric to another metric, or patience to 0'
    )


def _check_personalization(opened: session.Session) -> None:
  """Checks that the last round trains all clients' personalized models.

  Warns if an earlier round is the last to do so, or a privacy budget may be
  spent before.

  Raises:
    ConfigError: If no round of the run does, or it may be stopped before.
  """
  options = opened.config.algorithm.options
  option, interval = getattr(options, 'personalizes_after', ('', 0))
  if not interval:
    return
  patience = opened.training.selection.patience
  if 0 < patience * opened.training.evaluation_interval < interval:
    raise errors.ConfigError(
      f'config.algorithm.{option} is {interval}: with '
      f'config.training.selection.patience {patience} a run may be stopped '
      'before it; set config.training.evaluation_interval to a multiple of it, '
      'or patience to 0'
    )
  first, last = _first_round(opened), opened.training.num_rounds
  privacy = opened.config.privacy
  is_solved = not privacy.noise_multiplier and (
    not 0 < privacy.num_rounds < last
  )
  if interval > 1 and privacy.target_epsilon and not is_solved:
    logging.warning(
      'config.algorithm.%s is %d: with config.privacy.target_epsilon %g the '
      'run may end before it, its budget spent. A new run has noise for all '
      'rounds with config.privacy.noise_multiplier 0 and '
      'config.privacy.num_rounds 0 or at least %d.',
      *(option, interval, privacy.target_epsilon, last),
    )
  newest = last - last % interval
  if newest == last:
    return
  when = f'last in round {newest}' if newest > first else 'in no round of them'
  text = (
    f'config.algorithm.{option} is {interval}: of the rounds {first + 1} to '
    f"{last} all clients' personalized models are trained {when}; set a "
    f'divisor of {last}, such as {math.gcd(last, last - first)}'
  )
  if newest <= first:
    raise errors.ConfigError(text)
  logging.warning('%s', text)


def _check_recipe(
  config: options.DatasetConfig, dataset: dataset_lib.FederatedDataset
) -> None:
  """Warns if a dataset of this workdir was built with other options."""
  if dataset.address:
    return  # Published by others, with a config of theirs.
  wanted, built = (
    config_lib.flatten(recipe)
    for recipe in (config_lib.to_recipe(config), dataset.manifest['recipe'])
  )
  for key in {**wanted, **built}:
    # A recipe has the hash of what was taken over, and no paths of raw data.
    is_known = key in wanted and key in built
    if key == 'fitted_from' or key.startswith(_SOURCE) and not is_known:
      continue
    if wanted.get(key) != built.get(key):
      logging.warning(
        'config.dataset.%s is %s, but %s was built with %s, and is used as it '
        'is. To train by the config, build the dataset again with '
        'binaries.preprocess, in another --workdir if this one has checkpoints',
        key,
        wanted.get(key, 'the default'),
        dataset.path,
        built.get(key, 'the default'),
      )
      return


def _first_round(opened: session.Session) -> int:
  return opened.parent.round_num if opened.parent else 0


def _move_states(opened: session.Session) -> None:
  """Moves the states of the parent run; logs the numbers of clients."""
  config = opened.config
  parent = checks.check_given('parent', opened.parent)
  _check_encoding(opened, parent)
  parent = continuation.start(
    parent,
    opened.workdir,
    opened.algorithm,
    opened.runtime,
    opened.source,
    opened.store,
    opened.checkpoints,
    config.continuation,
  )
  logging.info(
    'Continues %s after round %d: '
    '%d clients stay, %d return, %d join, %d left.',
    parent.workdir,
    parent.round_num,
    parent.stayed,
    parent.returned,
    parent.joined,
    parent.left,
  )


def _check_encoding(
  opened: session.Session, parent: continuation.Parent
) -> None:
  """Raises DataError if the parent was trained on examples encoded otherwise.

  Its models would read other inputs, and name other classes, than they learned.
  """
  folder = continuation.parent_folder(opened.workdir, parent)
  # A night's run links to its version; elsewhere it may not be the current one.
  for version in (None, parent.dataset_version):
    with contextlib.suppress(errors.UserError, OSError):
      with dataset_lib.FederatedDataset.open(
        folder / 'dataset', version=version, verify=False
      ) as dataset:
        before = dataset.manifest
      if before['version'] == parent.dataset_version:
        break
  else:
    logging.warning(
      'Whether examples are encoded as those of %s is not checked: its dataset '
      'version %s cannot be read.',
      folder,
      parent.dataset_version,
    )
    return
  drift.check_comparable(opened.dataset.manifest, before)


def shown_metrics(dataset: dataset_lib.FederatedDataset) -> dict[str, str]:
  """Returns metric -> label in the progress bar."""
  if dataset.num_examples(schema.VALIDATION).any():
    return _TRAINING | _VALIDATION
  return _TRAINING
