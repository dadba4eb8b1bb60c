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


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of a run: default parent of the next three.'
  )
  dataset = flags.DEFINE_string(
    'dataset',
    None,
    'Folder of the dataset, or its address; default: <workdir>/dataset.',
  )
  model_base_path = flags.DEFINE_string(
    'model_base_path',
    None,
    'Folder of the exported models, <model>/<version>/; default: '
    '<workdir>/export.',
  )
  output_dir = flags.DEFINE_string(
    'output_dir', None, 'Output folder; default: <workdir>/predictions.'
  )
  config = command.define_options(
    model_choice.ScoringConfig,
    ('split', 'group', 'personalized', 'otherwise', 'pick_split'),
  )
  assignments_path = flags.DEFINE_string(
    'assignments',
    None,
    'CSV table with columns client_id and cluster_id, such as '
    '<workdir>/evaluation/clients.csv: cluster assignments of clients without '
    'a personalized model.',
  )
  beam_options = command.define_beam_options_flag()

  def folder(flag: flags.FlagHolder, name: str) -> pathlib.Path:
    if flag.value:
      return pathlib.Path(flag.value)
    if not workdir.value:
      raise errors.ConfigError(f'give --workdir or --{flag.name}')
    return pathlib.Path(workdir.value, name)

  def main() -> None:
    from pipelines.engines import runner
    from pipelines.scoring import batch_inference

    assignments = {}
    if assignments_path.value:
      assignments = model_choice.read_assignments(
        pathlib.Path(assignments_path.value)
      )
    result = batch_inference.score(
      dataset.value or folder(dataset, 'dataset'),
      folder(model_base_path, 'export'),
      folder(output_dir, 'predictions'),
      config(),
      assignments=assignments,
      pipeline_options=runner.split_flags(beam_options.value),
    )
    logging.info('%s', batch_inference.summarize(result))

  command.run(main)


if __name__ == '__main__':
  _main()
