"""TensorFlow's own message is the oracle."""

import tensorflow as tf

from tff_algos.data import example_proto


def _fill(example):
  features = example.features.feature
  features['bytes'].bytes_list.value.extend([b'', b'\0\xff'])
  features['numbers'].float_list.value.extend([0.0, -1.5, 3e38])
  features['ids'].int64_list.value.extend([0, -1, 2**62])
  features['none'].SetInParent()
  return example


def test_bytes_are_those_of_tensorflow():
  ours = _fill(example_proto.Example()).SerializeToString(deterministic=True)
  theirs = _fill(tf.train.Example()).SerializeToString(deterministic=True)
  assert ours == theirs


def test_tensorflows_bytes_are_read():
  record = _fill(tf.train.Example()).SerializeToString()
  read = example_proto.Example.FromString(record)
  assert read == _fill(example_proto.Example())
  kinds = {
    name: feature.WhichOneof('kind')
    for name, feature in read.features.feature.items()
  }
  assert kinds == {
    'bytes': 'bytes_list',
    'numbers': 'float_list',
    'ids': 'int64_list',
    'none': None,
  }
