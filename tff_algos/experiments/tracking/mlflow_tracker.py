"""MLflow as a tracker."""

import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tff_algos.core import errors, extras
from tff_algos.experiments.tracking import tracker

_ROUND = 'round'
# Of MLflow's REST API.
_MAX_METRICS = 1000
_MAX_ENTRIES = 100
_MAX_LENGTH = 6000
_SAVED_MODEL = 'saved_model'


class MlflowTracker:
  """Run of MLflow at the server that MLFLOW_TRACKING_URI names.

  Attributes:
    run_id: Id of the run.
  """

  def __init__(
    self,
    config: tracker.TrackingConfig,
    options: Mapping[str, Any],
    name: str,
    run_id: str | None,
  ):
    """Connects to the server.

    Args:
      config: Options of tracking.
      options: Dotted key -> value of the experiment's config.
      name: Name of the run.
      run_id: Id of a run to go on with; None for a new one.
    """
    self._config = config
    self._options = options
    self._name = name
    self.run_id = run_id or ''
    self._last = -1
    with extras.importing('tracking', "config.tracking.name='mlflow'"):
      import mlflow
      from mlflow import entities, exceptions, models, types
    self._mlflow, self._entities = mlflow, entities
    self._models, self._types = models, types
    self._error = exceptions.MlflowException
    with self._failures():
      self._client = mlflow.MlflowClient()
      if run_id is None:
        self._start()
      else:
        metrics = self._client.get_run(run_id).data.metrics
        self._last = int(metrics.get(_ROUND, -1))

  def resume(self, round_num: int) -> None:
    """Begins a new run if the training begins, and this one has rounds."""
    if round_num == 0 and self._last >= 0:
      with self._failures():
        self._client.set_terminated(self.run_id, 'KILLED')
        self._start()

  def record(self, round_num: int, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of a round that was not sent before."""
    if round_num > self._last:
      self._send({**metrics, _ROUND: round_num}, round_num)
      self._last = round_num

  def summarize(self, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of an evaluation as `evaluation/...`."""
    self._send(
      {f'evaluation/{name}': value for name, value in metrics.items()},
      max(self._last, 0),
    )

  def add_pictures(self, paths: list[pathlib.Path]) -> None:
    """Sends pictures as artifacts in `report`."""
    with self._failures():
      for path in paths:
        self._client.log_artifact(self.run_id, str(path), 'report')

  def register(self, model: tracker.Model) -> None:
    """Sends a bundle as a model of MLflow, and registers it as a version.

    Nothing is sent if it was registered before.
    """
    name = f'{self._config.experiment}.{model.name}'
    place = f'{model.name}/{model.bundle.name}'
    tags = {key: str(value) for key, value in model.provenance.items()}
    with self._failures(), tempfile.TemporaryDirectory() as folder:
      uri = self._client.get_run(self.run_id).info.artifact_uri
      found = self._client.search_model_versions(f"name='{name}'")
      if any(
        (one.source, one.tags) == (f'{uri}/{place}', tags) for one in found
      ):
        return
      shutil.copytree(model.bundle, pathlib.Path(folder, _SAVED_MODEL))
      described = self._models.Model(
        run_id=self.run_id,
        artifact_path=place,
        signature=self._models.ModelSignature(
          self._schema(model.inputs), self._schema(model.outputs)
        ),
        metadata=dict(model.provenance),
      )
      described.add_flavor(
        'tensorflow',
        saved_model_dir=_SAVED_MODEL,
        model_type='tf1-estimator',
        meta_graph_tags=['serve'],
        signature_def_key='serving_default',
      )
      described.save(str(pathlib.Path(folder, 'MLmodel')))
      self._client.log_artifacts(self.run_id, folder, place)
      if not self._client.search_registered_models(f"name='{name}'"):
        self._client.create_registered_model(name)
      self._client.create_model_version(
        name, f'{uri}/{place}', self.run_id, tags=tags
      )

  def close(self, has_failed: bool = False) -> None:
    """Marks the run as finished or failed; a later program may go on with it.

    Args:
      has_failed: Whether the program ended by an error.
    """
    with self._failures():
      self._client.set_terminated(
        self.run_id, 'FAILED' if has_failed else 'FINISHED'
      )

  def _start(self) -> None:
    """Creates a run with the config as its params."""
    run = self._client.create_run(self._experiment_id(), run_name=self._name)
    self.run_id, self._last = run.info.run_id, -1
    entries = [
      self._entities.Param(key, str(value)[:_MAX_LENGTH])
      for key, value in self._options.items()
    ]
    for first in range(0, len(entries), _MAX_ENTRIES):
      part = entries[first : first + _MAX_ENTRIES]
      self._client.log_batch(self.run_id, params=part)

  def _experiment_id(self) -> str:
    """Returns the id of the experiment; creates it if it is missing."""
    name = self._config.experiment
    found = self._client.get_experiment_by_name(name)
    if found is None:
      try:
        return self._client.create_experiment(name)
      except self._error as error:
        # A run that started at the same time may have created it.
        if error.error_code == 'RESOURCE_ALREADY_EXISTS':
          found = self._client.get_experiment_by_name(name)
        if found is None:
          raise
    return found.experiment_id

  def _send(self, metrics: Mapping[str, float], step: int) -> None:
    now = int(1000 * time.time())
    entries = [
      self._entities.Metric(name, value, now, step)
      for name, value in tracker.numbers(metrics).items()
    ]
    with self._failures():
      for first in range(0, len(entries), _MAX_METRICS):
        part = entries[first : first + _MAX_METRICS]
        self._client.log_batch(self.run_id, metrics=part)

  def _schema(self, fields: tuple[tracker.Field, ...]) -> Any:
    return self._types.Schema(
      [
        self._types.TensorSpec(
          np.dtype(str) if field.dtype == object else field.dtype,
          field.shape,
          field.name,
        )
        for field in fields
      ]
    )

  @contextlib.contextmanager
  def _failures(self) -> Iterator[None]:
    """Turns errors of MLflow and of the connection into one of ours."""
    try:
      yield
    except (self._error, OSError) as error:
      raise errors.InfrastructureError(
        f'MLflow at {self._mlflow.get_tracking_uri()} failed: {error}. Check '
        'the variable MLFLOW_TRACKING_URI, remove tracking.json of the workdir '
        'if its run was deleted there, and run the same command again; '
        "--config.tracking.name='' goes on without a tracker"
      ) from error
