"""Signatures of a SavedModel of several graphs."""

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tff_algos.core import errors
from tff_algos.export import signature_defs


def _write(folder, *tags):
  """Writes a SavedModel with a graph and a signature of each tag."""
  model = saved_model_pb2.SavedModel()
  for tag in tags:
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.append(tag)
    graph.signature_def[f'of {tag}'].method_name = tag
  path = folder / signature_defs.GRAPH_FILE
  path.write_bytes(model.SerializeToString())


def test_the_graph_is_chosen_by_its_tag(tmp_path):
  _write(tmp_path, 'train', 'serve')
  assert [*signature_defs.read(tmp_path)] == ['of serve']


def test_a_model_that_cannot_be_served_is_refused(tmp_path):
  _write(tmp_path, 'train')
  with pytest.raises(errors.ExportError, match='no graph with the tag "serve"'):
    signature_defs.read(tmp_path)
