"""The bytes of three small datasets, so that they never change unnoticed.

A change that means to change them raises `manifest.CODE_VERSION` and brings
new checksums; the failing test prints them.
"""

import hashlib

import pytest

from pipelines import build_dataset
from tests.testing import raw_data


def _digits(folder):
  del folder
  return raw_data.digits_config()


def _linear_regression(folder):
  del folder
  return raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {
        'num_examples_per_source': 500,
        'num_held_out_per_source': 50,
      },
    },
    distributions={'kind': 'native'},
    partition={'law': 'linear', 'num_clients': 5},
    splits={'validation_ratio': 0.5},
    num_shards=1,
  )


def _csv(folder):
  raw_data.write_csv(folder, 60)
  return raw_data.csv_config(
    folder, partition={'law': 'natural'}, splits={'test_ratio': 0.5}
  )


# name of a file -> the first 16 hex digits of its SHA-256
_GOLDEN = {
  '_csv': {
    'held_out-00000-of-00001.array_record': 'cf6bd0fab1b85445',
    'test-00000-of-00001.array_record': '62b4a9f7ca3e5ab5',
    'train-00000-of-00001.array_record': 'e489427edd63955c',
    'validation-00000-of-00001.array_record': 'eee719092ede2d0a',
  },
  '_digits': {
    'held_out-00000-of-00002.array_record': '2d3e6c4d39a8e7d6',
    'held_out-00001-of-00002.array_record': '4cfd42e3c68a5b4a',
    'test-00000-of-00002.array_record': 'c0afc92cc4452ff3',
    'test-00001-of-00002.array_record': 'e9bfbaf8578d27f4',
    'train-00000-of-00002.array_record': '7f8b2458a035b5ab',
    'train-00001-of-00002.array_record': 'a37d450674b310b7',
    'validation-00000-of-00002.array_record': '8c7fe78f33560410',
    'validation-00001-of-00002.array_record': 'd62042973632ded0',
  },
  '_linear_regression': {
    'held_out-00000-of-00002.array_record': '5ddc559ce1efe99d',
    'held_out-00001-of-00002.array_record': '7931ecdfe421f109',
    'test-00000-of-00001.array_record': '9b22d639a99091af',
    'train-00000-of-00001.array_record': 'fe17e7a6a0e746c9',
    'validation-00000-of-00001.array_record': '88c047e6b1e96a97',
  },
}


# A recipe of long ago keeps its version, whatever options have been added.
_VERSIONS = {
  '_csv': '08ac80149fac2222',
  '_digits': '572e3a89ae62150d',
  '_linear_regression': '65801ca36110c9c4',
}


@pytest.mark.parametrize('make_config', [_digits, _linear_regression, _csv])
def test_bytes_are_those_of_long_ago(tmp_path, make_config):
  result = build_dataset.build(make_config(tmp_path), tmp_path / 'dataset')
  folder = result.path / 'versions' / result.version
  checksums = {
    path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    for path in sorted(folder.glob('*.array_record'))
  }
  assert checksums == _GOLDEN[make_config.__name__], checksums
  assert result.version == _VERSIONS[make_config.__name__]
