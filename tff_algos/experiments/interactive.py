"""Experiments in Python and notebooks: one object for a config and its workdir.

Each method calls the function that the program of the same step calls, so both
read and write the same files.
"""

import dataclasses
import os
import pathlib
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, extras, rich_repr
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import (
  config_file,
  config_values,
  evaluating,
  experiment,
  exporting,
  runtime_cache,
  training,
)
from tff_algos.reports.plotting import gallery
from tff_algos.reports.run import page, summary
from tff_algos.reports.run import run as run_lib
from tff_algos.stores import objects
from tff_algos.training import checkpoint, continuation

_RUNS = 'runs'


class Experiment(rich_repr.Described):
  """An experiment: its config, and the folder that all its steps write to.

  >>> import tempfile
  >>> import tff_algos
  >>> experiment = tff_algos.Experiment.from_config(
  ...   'fed_avg/digits:smoke',
  ...   workdir=tempfile.mkdtemp(),
  ...   training={'num_rounds': 1},
  ...   algorithm={'local_training': {'num_local_epochs': 1}},
  ...   runtime={'name': 'debug'},
  ... )
  >>> experiment.fit().num_trained_rounds
  1
  >>> clients = experiment.evaluate()
  >>> len(clients), clients.index[0]
  (28, 'client_00000')
  >>> experiment.plot('accuracy', 'clients')
  <pictures: accuracy, clients>
  >>> bundles = experiment.export()  # doctest: +SKIP

  Attributes:
    config: The config; frozen dataclasses.
    workdir: The folder.
  """

  def __init__(
    self,
    config: experiment.ExperimentConfig,
    workdir: str | os.PathLike[str],
  ):
    """Writes nothing yet.

    Args:
      config: The config.
      workdir: Local folder of the run; made if it is missing.

    Raises:
      ConfigError: If the folder is an address of an object store.
    """
    objects.check_local('workdir', workdir)
    self.config = config
    self.workdir = pathlib.Path(workdir)
    # Training and evaluation share their graphs.
    self._runtime = runtime_cache.KeptRuntime()
    self._close = weakref.finalize(self, self._runtime.close)

  @classmethod
  def from_config(
    cls,
    config: str | os.PathLike[str],
    workdir: str | os.PathLike[str] | None = None,
    **overrides: Any,
  ) -> 'Experiment':
    """Returns the experiment of a config file.

    Args:
      config: Path of the file or its name in `configs`, with an optional
        variant: `'configs/fed_soft/digits.py:smoke'`, `'fed_soft/digits'`.
      workdir: Folder of the run; by default `runs/<name>`, where the name of
        `'fed_soft/digits:smoke'` is `fed_soft_digits_smoke`.
      **overrides: Values of the config, nested as its sections, such as
        `training={'num_rounds': 5}`. A model or algorithm of another name has
        the defaults of the options that are not given.

    Raises:
      ConfigError: If there is no such file, variant or key, or a value is out
        of range.
    """
    spelled = os.fspath(config)
    values = config_file.load(spelled).to_dict()
    parsed = experiment.parse_plain(config_values.merged(values, overrides))
    if workdir is None:
      workdir = pathlib.Path(_RUNS, config_file.name_of(spelled))
    return cls(parsed, workdir)

  @property
  def num_trained_rounds(self) -> int:
    """Returns the round of the latest checkpoint, 0 without any."""
    folder = self.workdir / checkpoint.FOLDER
    return max(checkpoint.saved_rounds(folder), default=0)

  def build_dataset(self) -> dataset_lib.FederatedDataset:
    """Builds the federated dataset, unless it is built; returns it, open.

    Raises:
      UserError: See `datasets.build`; also if Apache Beam is not installed.
    """
    with extras.importing('pipelines', 'Building a dataset'):
      from tff_algos.experiments import datasets
    built = datasets.build(self.config.dataset, self.workdir)
    return dataset_lib.FederatedDataset.open(built.path)

  def build_algorithm(self) -> algorithm_lib.FederatedAlgorithm:
    """Returns the algorithm with its model, for the experiment's dataset."""
    with self.build_dataset() as dataset:
      return experiment.build_algorithm(self.config, dataset)

  def fit(
    self,
    num_rounds: int | None = None,
    callbacks: Sequence[training.Callback] = (),
    shows_progress: bool | None = None,
  ) -> 'Experiment':
    """Trains to the last round, from the latest checkpoint; returns itself.

    Builds the dataset first, unless it is built. After Ctrl-C, or after a call
    that ended in an error, the next call goes on.

    Args:
      num_rounds: Total number of rounds, in place of the config's.
      callbacks: Functions of the round and its metrics (name -> value), called
        after each round; 0 is the initial state. An error in one of them ends
        the training.
      shows_progress: Whether to draw a progress bar; None to draw it in a
        terminal and in a notebook.

    Raises:
      UserError: See `training.train`.
    """
    if num_rounds is not None:
      changed = dataclasses.replace(self.config.training, num_rounds=num_rounds)
      self.config = dataclasses.replace(self.config, training=changed)
    self.build_dataset().close()
    training.train(
      self.config,
      self.workdir,
      kept=self._runtime,
      callbacks=callbacks,
      shows_progress=(
        _is_watched() if shows_progress is None else shows_progress
      ),
    )
    return self

  def evaluate(self, round_choice: int | str = checkpoint.LAST) -> Any:
    """Evaluates a checkpoint, and writes the tables of `evaluation/`.

    Args:
      round_choice: `'last'`, `'best'` by validation, or a round.

    Returns:
      A `pandas.DataFrame` of the clients by id, the content of
      `evaluation/clients.csv`.

    Raises:
      UserError: If there is no such checkpoint, or pandas is not installed.
    """
    _import_pandas()
    evaluating.evaluate(
      self.config, self.workdir, round_choice, kept=self._runtime
    )
    return self._read('evaluation/clients.csv', 'client_id')

  def metrics(self) -> Any:
    """Returns the metrics of all rounds, `metrics.csv`, as a `DataFrame`.

    Raises:
      UserError: If nothing is trained yet, or pandas is not installed.
    """
    return self._read('metrics.csv', 'round')

  def summary(self) -> Any:
    """Returns the report's summary table as a `DataFrame` of texts.

    Raises:
      UserError: If `evaluate` was not called, or pandas is not installed.
    """
    pandas = _import_pandas()
    rows = summary.rows(self._evaluated())
    frame = pandas.DataFrame(rows).set_index('label')
    return frame.rename(columns={'best': 'best by validation'})

  def plot(self, *names: str) -> gallery.Gallery:
    """Draws pictures of the report.

    Args:
      *names: Names without `.png`, such as `'accuracy'`; none for all pictures
        that apply to the run.

    Raises:
      UserError: If a name is unknown or does not apply to the run, or
        `evaluate` was not called.
    """
    return gallery.draw(page.PICTURES, self._evaluated(), names)

  def export(
    self,
    round_choice: int | str = checkpoint.LAST,
    client_id: str | None = None,
  ) -> list[pathlib.Path]:
    """Exports a checkpoint as SavedModels, without a gate; see `exporting`.

    Args:
      round_choice: As of `evaluate`.
      client_id: Exports the model of this client alone.

    Returns:
      The folders of the bundles.

    Raises:
      UserError: See `exporting.export`.
    """
    return exporting.export(
      self.config, self.workdir, round_choice, client_id, kept=self._runtime
    )

  def report(self) -> pathlib.Path:
    """Writes the report of an evaluated run; returns its index page.

    Raises:
      UserError: If `evaluate` was not called.
    """
    self._evaluated()
    return evaluating.write_report(self.config, self.workdir)

  def close(self) -> None:
    """Ends the runtime and its processes; a later call starts it again."""
    self._runtime.close()

  def description(self) -> tuple[str, Mapping[str, object]]:
    """Returns the config's name, and what is run where."""
    config = self.config
    source = config.dataset.source
    parent = continuation.read_parent(self.workdir)
    first = parent.round_num if parent else 0
    # A start that was interrupted has a parent and no checkpoint.
    num_own_rounds = max(self.num_trained_rounds - first, 0)
    return f'Experiment {config.name!r}', {
      'algorithm': config.algorithm.name,
      'model': config.model.name,
      'dataset': source.name,
      'runtime': config.runtime.name,
      'trained rounds': f'{num_own_rounds} of {config.training.num_rounds}',
      'workdir': self.workdir,
    }

  def _evaluated(self) -> run_lib.Run:
    if not (self.workdir / 'evaluation' / 'summary.json').is_file():
      raise errors.UserError(
        f'{self.workdir} is not evaluated yet; call fit() and evaluate() first'
      )
    return run_lib.read(self.workdir)

  def _read(self, name: str, index: str) -> Any:
    pandas = _import_pandas()
    path = self.workdir / name
    if not path.is_file():
      raise errors.UserError(f'there is no {path} yet; call fit() first')
    # Else '007' would be the number 7, and 'NA' missing.
    frame = pandas.read_csv(path, converters={'client_id': str})
    return frame.set_index(index)


def _import_pandas() -> Any:
  with extras.importing('notebook', 'A data frame'):
    import pandas
  return pandas


def _is_watched() -> bool:
  """Returns whether stderr is a terminal, or the output of a notebook."""
  return sys.stderr.isatty() or 'ipykernel' in sys.modules
