"""Tiny raw data and dataset configs for tests of the pipelines."""

import dataclasses
import gzip
import pathlib
from typing import Any

import numpy as np

from pipelines import options
from tff_algos.core import config as config_lib


def digits_config(**overrides: Any) -> options.DatasetConfig:
  """Returns a small dataset of digits; overrides replace whole entries."""
  return config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {'name': 'digits'},
      'distributions': {'kind': 'rotations', 'quarter_turns': (0, 1)},
      'partition': {'law': '10:90', 'num_clients': 6, 'num_unseen_clients': 2},
      'sizes': {'law': 'uniform', 'minimum': 5, 'maximum': 20},
      'splits': {'validation_ratio': 0.2, 'test_ratio': 0.2},
      'seed': 3,
      'num_shards': 2,
    }
    | overrides,
  )


def csv_config(folder: pathlib.Path, **overrides: Any) -> options.DatasetConfig:
  """Returns a dataset of the table that `write_csv` writes."""
  return config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {
        'name': 'csv',
        'options': {
          'path': str(folder / 'table.csv'),
          'label_column': 'y',
          'feature_columns': ('a', 'b'),
          'classes': ('no', 'yes'),
          'client_column': 'who',
        },
      },
      'partition': {'law': 'iid', 'num_clients': 3},
      'splits': {'held_out_fraction': 0.2},
    }
    | overrides,
  )


def with_options(
  config: options.DatasetConfig, **changes: Any
) -> options.DatasetConfig:
  """Returns a config with some options of its source replaced or added."""
  changed = {**config.source.options, **changes}
  source = dataclasses.replace(config.source, options=changed)
  return dataclasses.replace(config, source=source)


def write_csv(
  folder: pathlib.Path, num_rows: int = 60, bad_rows: tuple[str, ...] = ()
) -> None:
  """Writes `table.csv`: features a and b, label y, client who; bad rows last."""
  rows = [
    f'{i},{i / 7},{("no", "yes")[i % 2]},person_{i % 4}'
    for i in range(num_rows)
  ]
  (folder / 'table.csv').write_text(
    '\n'.join(('a,b,y,who', *rows, *bad_rows)) + '\n'
  )


def write_idx(path: pathlib.Path, array: np.ndarray) -> None:
  """Writes an array of bytes as an IDX file, gzipped if named so."""
  header = bytes([0, 0, 8, array.ndim])
  header += np.array(array.shape, '>u4').tobytes()
  content = header + array.astype(np.uint8).tobytes()
  if path.suffix == '.gz':
    content = gzip.compress(content)
  path.write_bytes(content)


def write_mnist_like(
  folder: pathlib.Path, num_train: int = 50, num_test: int = 10
) -> dict[str, np.ndarray]:
  """Writes four IDX files of random 4x4 images; returns what they hold."""
  generator = np.random.default_rng(0)
  arrays = {}
  for part, count in (('train', num_train), ('t10k', num_test)):
    arrays[f'{part}-images-idx3-ubyte'] = generator.integers(
      0, 256, (count, 4, 4), np.uint8
    )
    arrays[f'{part}-labels-idx1-ubyte'] = generator.integers(
      0, 10, count, np.uint8
    )
  for i, (name, array) in enumerate(arrays.items()):
    # Both plain and compressed files are found.
    write_idx(folder / (name + ('.gz' if i % 2 else '')), array)
  return arrays


def file_bytes(folder: pathlib.Path) -> dict[str, bytes]:
  """Returns relative path -> content of all files below a folder."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }
