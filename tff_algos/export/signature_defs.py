"""Signatures of a SavedModel, read without loading it."""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import pathlib

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tff_algos.core import errors

GRAPH_FILE = 'saved_model.pb'


def read(folder: pathlib.Path) -> dict[str, meta_graph_pb2.SignatureDef]:
  """Returns name -> SignatureDef of the graph for serving.

  Raises:
    ExportError: If the SavedModel has none with the tag.
  """
  content = saved_model_pb2.SavedModel()
  content.ParseFromString((folder / GRAPH_FILE).read_bytes())
  for graph in content.meta_graphs:
    if tf.saved_model.SERVING in graph.meta_info_def.tags:
      return dict(graph.signature_def)
  raise errors.ExportError(f'{folder} has no graph with the tag "serve"')
