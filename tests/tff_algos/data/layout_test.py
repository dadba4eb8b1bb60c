import pathlib

from tff_algos.data import layout


def test_shard_name():
  name = layout.shard_name('train', 3, 16)
  assert name == 'train-00003-of-00016.array_record'


def test_version_folder():
  folder = layout.version_folder(pathlib.Path('a'), 'v1')
  assert folder == pathlib.Path('a/versions/v1')
