"""Small files in the original form of every source that reads some."""

import json
import pathlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
import tensorflow as tf
from pyarrow import parquet

from pipelines.sources import base
from tests.testing import raw_data

VOCABULARY = ('the', 'a', 'how', 'to', 'do', 'i')


def read(source: base.Source) -> list[base.RawExample]:
  """Returns the examples of all blocks."""
  return [one for block in source.blocks() for one in source.read(block)]


def write_arrays(folder: pathlib.Path) -> dict[str, Any]:
  """Writes six vectors of two clients, of three classes by name."""
  arrays = {
    'x': np.arange(12, dtype=np.float32).reshape(6, 2),
    'y': np.array(['walk', 'sit', 'sit', 'run', 'walk', 'run']),
    'client': np.array(['ann', 'bob', 'ann', 'bob', 'ann', 'bob']),
    'is_test': np.arange(6) == 4,
  }
  for name, array in arrays.items():
    np.save(folder / f'{name}.npy', array)
  return {'folder': str(folder)}


def write_cifar(folder: pathlib.Path) -> dict[str, Any]:
  """Writes CIFAR-100's two files of random images."""
  generator = np.random.default_rng(0)
  for name in ('train.bin', 'test.bin'):
    records = generator.integers(0, 256, (3, 2 + 3072), np.uint8)
    records[:, 0] %= 20
    records[:, 1] %= 100
    (folder / name).write_bytes(records.tobytes())
  return {'folder': str(folder), 'dataset': 'cifar100'}


def write_csv(folder: pathlib.Path) -> dict[str, Any]:
  """Writes a table of numbers with classes and owners."""
  raw_data.write_csv(folder, 5)
  return {
    'path': str(folder / 'table.csv'),
    'label_column': 'y',
    'feature_columns': ('a', 'b'),
    'classes': ('no', 'yes'),
    'client_column': 'who',
  }


def write_emnist(
  folder: pathlib.Path, labels: Sequence[int] = (0, 9, 10, 35, 36, 61)
) -> dict[str, Any]:
  """Writes by-class; image i has its top right corner lit, as the files lie."""
  images = np.zeros((len(labels), 28, 28), np.uint8)
  images[:, -1, 0] = 255
  images[:, 5, 5] = np.arange(len(labels))
  for part in ('train', 'test'):
    stem = f'emnist-byclass-{part}'
    raw_data.write_idx(folder / f'{stem}-images-idx3-ubyte', images)
    raw_data.write_idx(folder / f'{stem}-labels-idx1-ubyte', np.array(labels))
    images[:, 5, 5] += 100
  return {'folder': str(folder), 'split': 'byclass'}


def write_idx(folder: pathlib.Path) -> dict[str, Any]:
  """Writes four files like MNIST's, of 4x4 images."""
  raw_data.write_mnist_like(folder, 5, 2)
  return {'folder': str(folder)}


def write_images(folder: pathlib.Path) -> dict[str, Any]:
  """Writes three images of each of two clients, of two classes."""
  for client, labels in (('ann', 'ccd'), ('bob', 'cdd')):
    for number, label in enumerate(labels):
      path = folder / client / f'{label}at' / f'{number}.png'
      path.parent.mkdir(parents=True, exist_ok=True)
      image = np.full((8, 6, 3), 40 * number + ord(client[0]), np.uint8)
      path.write_bytes(tf.io.encode_png(image).numpy())
  return {'folder': str(folder), 'shape': (4, 4, 3)}


def write_parquet(folder: pathlib.Path) -> dict[str, Any]:
  """Writes two files with two row groups each."""
  for number in range(2):
    table = pyarrow.table(
      {
        'a': np.arange(4) + 4 * number,
        'b': (np.arange(4) + 4 * number) / 8,
        'y': np.array([0, 1, 1, 0]),
        'who': ['ann', 'bob', 'ann', 'bob'],
      }
    )
    path = folder / f'part-{number}.parquet'
    parquet.write_table(table, path, row_group_size=3)
  return {
    'path': str(folder / 'part-*.parquet'),
    'label_column': 'y',
    'feature_columns': ('a', 'b'),
    'classes': ('0', '1'),
    'client_column': 'who',
  }


def write_windows(folder: pathlib.Path) -> dict[str, Any]:
  """Writes a table of two clients by turns, read in windows of two rows."""
  rows = [f'{i},{i / 7},{i % 2},{"ab"[i % 2]}' for i in range(8)]
  (folder / 'table.csv').write_text('\n'.join(('time,v,y,who', *rows)))
  return {
    'path': str(folder / 'table.csv'),
    'label_column': 'y',
    'classes': ('0', '1'),
    'client_column': 'who',
    'time_column': 'time',
    'features': ({'name': 'v'},),
    'window_length': 2,
  }


def write_tiny_imagenet(folder: pathlib.Path) -> dict[str, Any]:
  """Writes two classes of two training images and one validation image."""
  (folder / 'wnids.txt').write_text('n2\nn1\n')
  (folder / 'val' / 'images').mkdir(parents=True)
  annotations = []
  for number, name in enumerate(('n2', 'n1')):
    images = folder / 'train' / name / 'images'
    images.mkdir(parents=True)
    for i in range(2):
      write_jpeg(images / f'{name}_{i}.JPEG', 50 + 100 * number)
    write_jpeg(folder / 'val' / 'images' / f'v{number}.JPEG', 100 * number)
    annotations.append(f'v{number}.JPEG\t{name}\t0\t0\t62\t62\n')
  (folder / 'val' / 'val_annotations.txt').write_text(''.join(annotations))
  return {'folder': str(folder)}


def write_jpeg(path: pathlib.Path, level: int, shape=(64, 64, 3)) -> None:
  """Writes an image of one level of grey."""
  image = np.full(shape, level, np.uint8)
  path.write_bytes(tf.io.encode_jpeg(image, quality=95).numpy())


def write_femnist(folder: pathlib.Path) -> dict[str, Any]:
  """Writes one file of two writers and one of a third."""
  data = folder / 'all_data'
  data.mkdir()
  writers = {'f0001_41': (3, 61), 'f0002_00': (0,), 'f0003_07': (10, 36, 9)}
  for number, users in enumerate((('f0001_41', 'f0002_00'), ('f0003_07',))):
    tree = {
      'users': list(users),
      'num_samples': [len(writers[user]) for user in users],
      'user_data': {
        user: {
          'x': [[label / 64] * 783 + [1.0] for label in writers[user]],
          'y': list(writers[user]),
        }
        for user in users
      },
    }
    (data / f'all_data_{number}.json').write_text(json.dumps(tree))
  return {'folder': str(folder)}


def write_database(
  path: pathlib.Path, clients: Mapping[str, Mapping[str, Sequence[Any]]]
) -> None:
  """Writes client -> split -> `tf.train.Example`s, or bytes in their place."""
  database = sqlite3.connect(path)
  database.execute('PRAGMA synchronous = OFF')
  database.execute(
    'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, '
    'serialized_example_proto BLOB NOT NULL)'
  )
  database.execute(
    'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT '
    'NOT NULL, num_examples INTEGER NOT NULL)'
  )
  for client, splits in clients.items():
    for split, records in splits.items():
      database.execute(
        'INSERT INTO client_metadata VALUES (?, ?, ?)',
        (client, split, len(records)),
      )
      for record in records:
        if not isinstance(record, bytes):
          record = record.SerializeToString()
        database.execute(
          'INSERT INTO examples VALUES (?, ?, ?)', (split, client, record)
        )
  database.commit()
  database.close()


def image_record(level: float, label: int) -> tf.train.Example:
  """Returns an example as Federated EMNIST has it."""
  pixels = tf.train.Feature(
    float_list=tf.train.FloatList(value=[level] * 783 + [1.0])
  )
  label = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
  return tf.train.Example(
    features=tf.train.Features(feature={'pixels': pixels, 'label': label})
  )


def post_record(post: str | bytes) -> tf.train.Example:
  """Returns an example as Stack Overflow has it."""
  post = post.encode() if isinstance(post, str) else post
  tokens = tf.train.Feature(bytes_list=tf.train.BytesList(value=[post]))
  return tf.train.Example(
    features=tf.train.Features(feature={'tokens': tokens})
  )


def write_federated_emnist(folder: pathlib.Path) -> dict[str, Any]:
  """Writes a database of three writers."""
  clients = {
    f'f{i}': {
      'train': [image_record(i / 8, 7 * i + k) for k in range(i + 1)],
      'test': [image_record(0.5 + i / 8, i)],
    }
    for i in range(3)
  }
  write_database(folder / 'emnist_all.sqlite', clients)
  return {'folder': str(folder)}


def write_stack_overflow(folder: pathlib.Path) -> dict[str, Any]:
  """Writes a database of two accounts, and a vocabulary of six words."""
  clients = {
    '0001': {
      'train': [post_record('how do i xyzzy'), post_record('a')],
      'test': [post_record('how to do the a')],
    },
    '0002': {'train': [post_record('the the the the the the')], 'test': []},
  }
  write_database(folder / 'stackoverflow.sqlite', clients)
  (folder / 'vocabulary.txt').write_text('\n'.join(VOCABULARY) + '\n')
  return {'folder': str(folder), 'vocabulary_size': 6, 'length': 5}


def write_sentiment140(folder: pathlib.Path) -> dict[str, Any]:
  """Writes six tweets of two accounts; one has a letter of ISO-8859-1."""
  rows = [
    (0, 'ann', 'I am sad, sad'),
    (4, 'ann', "it's a good day!"),
    (4, 'bob', 'caf\xe9 &amp; ""cake""'),
    (0, 'bob', ''),
    (4, 'ann', 'good good day'),
    (0, 'bob', 'sad day.'),
  ]
  lines = [
    f'"{mood}","{i}","Mon Apr 06","NO_QUERY","{who}","{text}"\n'
    for i, (mood, who, text) in enumerate(rows)
  ]
  (folder / 'tweets.csv').write_bytes(''.join(lines).encode('latin-1'))
  return {
    'folder': str(folder),
    'train_file': 'tweets.csv',
    'length': 4,
    'vocabulary_size': 5,
  }


def write_shakespeare(folder: pathlib.Path) -> dict[str, Any]:
  """Writes four speeches of three roles, with marks that are not ASCII."""
  speeches = [
    ('mac', 'Macbeth', 'Is this a dagger\nwhich I see?'),
    ('mac', 'Banquo', 'O'),
    ('mac', 'Macbeth', 'I have thee not—and yet…'),
    ('ham', 'Hamlet', 'To be, or not to be: that’s the café.'),
  ]
  lines = [
    json.dumps({'play': play, 'role': role, 'text': text})
    for play, role, text in speeches
  ]
  (folder / 'speeches.jsonl').write_text('\n'.join(lines) + '\n')
  return {'folder': str(folder), 'file': 'speeches.jsonl', 'window': 8}


# Source -> writes a sample into an empty folder and returns the options.
WRITERS: Mapping[str, Callable[[pathlib.Path], dict[str, Any]]] = {
  'arrays': write_arrays,
  'cifar': write_cifar,
  'csv': write_csv,
  'emnist': write_emnist,
  'federated_emnist': write_federated_emnist,
  'femnist': write_femnist,
  'idx': write_idx,
  'images': write_images,
  'parquet': write_parquet,
  'sentiment140': write_sentiment140,
  'shakespeare': write_shakespeare,
  'stack_overflow': write_stack_overflow,
  'table': write_windows,
  'tiny_imagenet': write_tiny_imagenet,
}

# Source -> options of a small sample.
GENERATORS: Mapping[str, Mapping[str, Any]] = {
  'digits': {},
  'linear_regression': {
    'num_examples_per_source': 20,
    'num_held_out_per_source': 5,
  },
  'logistic_mixture': {'num_clients': 3, 'num_features': 4},
  'softmax_groups': {'num_clients_per_group': 1, 'max_examples': 60},
  'two_gaussians': {'num_examples': 20, 'num_held_out': 5},
}
