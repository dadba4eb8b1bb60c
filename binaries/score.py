r"""Scores a federated dataset with exported models (batch inference).

  python -m binaries.score --workdir=runs/digits

scores the test examples of every client in <workdir>/dataset with the models
in <workdir>/export: the client's personalized model if there is one, else a
cluster model. The predictions are published in <workdir>/predictions as
Parquet files. A dataset version scored before with the same models is skipped.
"""

import pathlib

from absl import flags, logging

from binaries import command
from pipelines.scoring import model_choice
from tff_algos.core import errors

_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of a run: default parent of the next three.'
)
_DATASET = flags.DEFINE_string(
  'dataset',
  None,
  'Folder of the dataset, or its address; default: <workdir>/dataset.',
)
_MODEL_BASE_PATH = flags.DEFINE_string(
  'model_base_path',
  None,
  'Folder of the exported models, <model>/<version>/; default: '
  '<workdir>/export.',
)
_OUTPUT_DIR = flags.DEFINE_string(
  'output_dir', None, 'Output folder; default: <workdir>/predictions.'
)
_CONFIG = command.define_options(
  model_choice.ScoringConfig,
  ('split', 'group', 'personalized', 'otherwise', 'pick_split'),
)
_ASSIGNMENTS = flags.DEFINE_string(
  'assignments',
  None,
  'CSV table with columns client_id and cluster_id, such as '
  '<workdir>/evaluation/clients.csv: cluster assignments of clients without a '
  'personalized model.',
)
_BEAM_OPTIONS = command.define_beam_options_flag()


def score() -> None:
  """Scores the dataset selected by the flags."""
  from pipelines.engines import runner
  from pipelines.scoring import batch_inference

  assignments = {}
  if _ASSIGNMENTS.value:
    assignments = model_choice.read_assignments(
      pathlib.Path(_ASSIGNMENTS.value)
    )
  result = batch_inference.score(
    _DATASET.value or _folder(_DATASET, 'dataset'),
    _folder(_MODEL_BASE_PATH, 'export'),
    _folder(_OUTPUT_DIR, 'predictions'),
    _CONFIG(),
    assignments=assignments,
    pipeline_options=runner.split_flags(_BEAM_OPTIONS.value),
  )
  logging.info('%s', batch_inference.summarize(result))


def _folder(flag: flags.FlagHolder, name: str) -> pathlib.Path:
  if flag.value:
    return pathlib.Path(flag.value)
  if not _WORKDIR.value:
    raise errors.ConfigError(f'give --workdir or --{flag.name}')
  return pathlib.Path(_WORKDIR.value, name)


if __name__ == '__main__':
  command.run(score)
