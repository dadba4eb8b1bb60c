"""`docs/pretrained.md`: its programs make files from which networks start."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.export import cluster_models
from tff_algos.models import registry

_TEXT = (
  pathlib.Path(__file__).parents[2].joinpath('docs/pretrained.md').read_text()
)
_RUN, _MOBILENET = re.findall(r'```python\n(.*?)```', _TEXT, re.DOTALL)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)


def test_weights_of_a_cluster_are_taken_out_of_its_export(tmp_path):
  model = exportable.linear_model()
  state, _ = exportable.states(model)
  folder = cluster_models.export_cluster_models(
    tmp_path / 'cluster_models',
    exportable.algorithm(model),
    state,
    exportable.sample_inputs(3),
    exportable.PROVENANCE,
  )
  exec(compile(_RUN, 'docs/pretrained.md', 'exec'), {'folder': str(folder)})
  with np.load('weights.npz') as written:
    assert written.keys() == state.cluster_weights.keys()
    for name, leaf in state.cluster_weights.items():
      np.testing.assert_array_equal(written[name], leaf[0])


def test_keras_mobilenet_keeps_what_it_computes(monkeypatch):
  """Every batch norm with statistics of its own, all folded."""
  original = tf.keras.applications.MobileNetV2
  made = []

  def random_network(shape, **options):
    network = original(shape, weights=None, **options)
    generator = np.random.default_rng(0)
    for layer in network.layers:
      if isinstance(layer, tf.keras.layers.BatchNormalization):
        size = layer.gamma.shape
        layer.set_weights(
          [
            *(generator.uniform(0.8, 1.2, size), generator.normal(size=size)),
            *(generator.normal(size=size), generator.uniform(0.5, 2.0, size)),
          ]
        )
    made.append(network)
    return network

  monkeypatch.setattr(tf.keras.applications, 'MobileNetV2', random_network)
  exec(compile(_MOBILENET, 'docs/pretrained.md', 'exec'), {})
  model = registry.build_model(
    {
      **{'name': 'mobilenet_v2', 'normalization': 'affine'},
      'pretrained': {'file': 'mobilenet.npz', 'fresh': ('head',)},
    },
    task='classification',
    input_shape=(32, 32, 3),
    num_outputs=10,
  )
  weights = model.initialize((1, 2))
  x = tf.random.stateless_uniform([4, 32, 32, 3], (3, 4), -1, 1)
  features = tf.reduce_mean(made[0](x), axis=[1, 2])
  expected = features @ weights['head/kernel'] + weights['head/bias']
  scale = np.abs(expected).max()
  np.testing.assert_allclose(
    model.apply(weights, x), expected, rtol=0, atol=1e-4 * scale
  )
