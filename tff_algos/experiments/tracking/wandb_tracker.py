"""Weights & Biases as a tracker."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tff_algos.core import errors, extras
from tff_algos.experiments.tracking import tracker


class WandbTracker:
  """Run of Weights & Biases; with WANDB_MODE=offline, in `<workdir>/wandb`.

  Attributes:
    run_id: Id of the run.
  """

  def __init__(
    self,
    config: tracker.TrackingConfig,
    options: Mapping[str, Any],
    name: str,
    run_id: str | None,
    folder: pathlib.Path,
  ):
    """Starts the run, or goes on with it.

    Args:
      config: Options of tracking.
      options: Dotted key -> value of the experiment's config.
      name: Name of the run.
      run_id: Id of a run to go on with; None for a new one.
      folder: Where Weights & Biases writes its files.
    """
    with extras.importing('tracking', "config.tracking.name='wandb'"):
      import wandb
    self._wandb = wandb
    self._begin = lambda run_id: wandb.init(
      project=config.experiment,
      name=name,
      id=run_id,
      dir=str(folder),
      config=dict(options),
      resume='allow',
      # It gets what `Tracker` has, and nothing else of this machine.
      settings=wandb.Settings(
        silent=True,
        console='off',
        disable_code=True,
        disable_git=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
      ),
    )
    with self._failures():
      self._run = self._begin(run_id)
    self._has_rounds = run_id is not None

  @property
  def run_id(self) -> str:
    """Returns the id of the run."""
    return self._run.id

  def resume(self, round_num: int) -> None:
    """Begins a new run if the training begins, and this one has rounds."""
    if round_num == 0 and self._has_rounds:
      with self._failures():
        self._run.finish(exit_code=1)
        self._run = self._begin(None)

  def record(self, round_num: int, metrics: Mapping[str, float]) -> None:
    """Sends the metrics of a round; rounds before the last are ignored."""
    with self._failures():
      self._run.log(tracker.numbers(metrics), step=round_num)
    self._has_rounds = True

  def summarize(self, metrics: Mapping[str, float]) -> None:
    """Sets the metrics of an evaluation as `evaluation/...` of the summary."""
    with self._failures():
      for name, value in tracker.numbers(metrics).items():
        self._run.summary[f'evaluation/{name}'] = value

  def add_pictures(self, paths: list[pathlib.Path]) -> None:
    """Sets pictures as `report/...` of the summary.

    In the history they would close a round, and that of a run that is trained
    further would be ignored.
    """
    with self._failures():
      for path in paths:
        picture = self._wandb.Image(str(path))
        self._run.summary[f'report/{path.stem}'] = picture

  def register(self, model: tracker.Model) -> None:
    """Sends a bundle as an artifact of type `model`, with its signature."""
    with self._failures():
      artifact = self._wandb.Artifact(
        model.name,
        'model',
        metadata={
          **model.provenance,
          'inputs': [_described(field) for field in model.inputs],
          'outputs': [_described(field) for field in model.outputs],
        },
      )
      artifact.add_dir(str(model.bundle))
      self._run.log_artifact(artifact)

  def close(self, has_failed: bool = False) -> None:
    """Waits until everything is sent, or written if offline.

    Args:
      has_failed: Whether the program ended by an error.
    """
    with self._failures():
      self._run.finish(exit_code=int(has_failed))

  @contextlib.contextmanager
  def _failures(self) -> Iterator[None]:
    """Turns errors of Weights & Biases into one of ours."""
    try:
      yield
    except (self._wandb.Error, OSError) as error:
      raise errors.InfrastructureError(
        f'Weights & Biases failed: {error}. Log in by WANDB_API_KEY, or set '
        'WANDB_MODE=offline, and run the same command again; '
        "--config.tracking.name='' goes on without a tracker"
      ) from error


def _described(field: tracker.Field) -> dict[str, Any]:
  return {'name': field.name, 'dtype': str(field.dtype), 'shape': field.shape}
