"""A released model of a few bytes, and pictures, to send to trackers."""

import json
import pathlib

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tff_algos.export import manifest


def write_bundle(folder: pathlib.Path) -> pathlib.Path:
  """Writes `cluster_models/3`, whose graph is empty; returns its folder."""
  bundle = folder / 'cluster_models' / '3'
  (bundle / manifest.EXTRA_FOLDER).mkdir(parents=True)
  model = saved_model_pb2.SavedModel()
  graph = model.meta_graphs.add()
  graph.meta_info_def.tags.append('serve')
  signature = graph.signature_def['serving_default']
  for fields, name, dtype, shape in (
    (signature.inputs, 'x', tf.float32, [None, 8, 8]),
    (signature.inputs, 'client_id', tf.string, [None]),
    (signature.outputs, 'logits', tf.float32, [None, 10]),
  ):
    fields[name].dtype = dtype.as_datatype_enum
    fields[name].tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
  (bundle / 'saved_model.pb').write_bytes(model.SerializeToString())
  facts = {
    'bundle_format': manifest.BUNDLE_FORMAT,
    'round_num': 7,
    'config_hash': 'abc',
    'dataset_version': 'v1',
    'files': {},
  }
  path = bundle / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE
  path.write_text(json.dumps(facts))
  return bundle


def write_picture(folder: pathlib.Path) -> pathlib.Path:
  """Writes `report/accuracy.png`, of one pixel."""
  path = folder / 'report' / 'accuracy.png'
  path.parent.mkdir()
  path.write_bytes(tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8)).numpy())
  return path
