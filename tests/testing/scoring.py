"""A dataset whose clients `exportable`'s models know, and some they do not."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines import build_dataset, options
from pipelines.scoring import batch_inference, model_choice
from tests.testing import exportable, raw_data
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib

# The first three have personalized models.
CLIENT_IDS = ('anna', 'b/2', 'çelik', 'eve', 'finn')
_COLUMNS = ('a', 'b', 'c', 'd')


def build_dataset_of_known_clients(
  folder: pathlib.Path, unlabelled: tuple[str, ...] = (), **more
) -> pathlib.Path:
  """Builds a dataset in `<folder>/dataset`; labelled clients have all splits.

  More are options of the dataset.
  """
  rng = np.random.default_rng(6)
  rows = []
  for i, x in enumerate(rng.normal(size=(300, len(_COLUMNS)))):
    client_id = CLIENT_IDS[i % 5]
    label = '' if client_id in unlabelled else f'c{i % 3}'
    rows.append(','.join([*(f'{value:.5f}' for value in x), label, client_id]))
  folder.mkdir(parents=True, exist_ok=True)
  header = ','.join((*_COLUMNS, 'y', 'who'))
  (folder / 'table.csv').write_text('\n'.join((header, *rows)) + '\n')
  config = config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {
        'name': 'csv',
        'options': {
          'path': str(folder / 'table.csv'),
          'label_column': 'y',
          'feature_columns': _COLUMNS,
          'classes': ('c0', 'c1', 'c2'),
          'client_column': 'who',
        },
      },
      'partition': {'law': 'natural'},
      'splits': {'held_out_fraction': 0.2, 'test_ratio': 0.4},
      'num_shards': 3,
      'keep_unlabelled': bool(unlabelled),
      **more,
    },
  )
  return build_dataset.build(config, folder / 'dataset').path


def write_workdir(folder: pathlib.Path) -> pathlib.Path:
  """Writes a dataset and exported models, as a run does; returns the folder."""
  build_dataset_of_known_clients(folder)
  exportable.write_all(folder / 'export')
  return folder


def write_regression_workdir(folder: pathlib.Path) -> pathlib.Path:
  """Writes a dataset and cluster models of a regression."""
  config = raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {
        'num_features': exportable.NUM_FEATURES,
        'num_examples_per_source': 400,
        'num_held_out_per_source': 10,
      },
    },
    distributions={'kind': 'native'},
  )
  build_dataset.build(config, folder / 'dataset')
  exportable.export_clusters(
    folder / 'export' / 'cluster_models',
    exportable.linear_model(model_lib.REGRESSION),
  )
  return folder


def score(
  workdir: pathlib.Path,
  output: pathlib.Path,
  *,
  dataset: str | pathlib.Path | None = None,
  assignments: Mapping[str, int] | None = None,
  beam_options: Sequence[str] = (),
  **choices: Any,
) -> batch_inference.ScoreResult:
  """Scores a workdir's dataset, or another one, by the workdir's models.

  Choices are those of `ScoringConfig`.
  """
  return batch_inference.score(
    dataset or workdir / 'dataset',
    workdir / 'export',
    output,
    model_choice.ScoringConfig(**choices),
    assignments=assignments,
    pipeline_options=beam_options,
  )
