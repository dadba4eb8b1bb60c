"""`docs/pretrained.md`: its programs make files from which networks start."""

import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable, programs, toys
from tff_algos.export import cluster_models

_TEXT = (programs.ROOT / 'docs' / 'pretrained.md').read_text()
_RUN, _MOBILENET, _RESNET = re.findall(r'```python\n(.*?)```', _TEXT, re.DOTALL)


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
  model = toys.build(
    {
      **{'name': 'mobilenet_v2', 'normalization': 'affine'},
      'pretrained': {'file': 'mobilenet.npz', 'fresh': ('head',)},
    },
    (32, 32, 3),
    10,
  )
  weights = model.initialize((1, 2))
  x = tf.random.stateless_uniform([4, 32, 32, 3], (3, 4), -1, 1)
  features = tf.reduce_mean(made[0](x), axis=[1, 2])
  expected = features @ weights['head/kernel'] + weights['head/bias']
  scale = np.abs(expected).max()
  np.testing.assert_allclose(
    model.apply(weights, x), expected, rtol=0, atol=1e-4 * scale
  )


def _resnet_state(generator):
  """Returns random weights under torchvision's names, kernels as PyTorch has them."""
  state = {}

  def add(convolution, norm, size, inputs, outputs):
    shape = (outputs, inputs, size, size)
    deviation = (2 / (inputs * size * size)) ** 0.5
    state[f'{convolution}.weight'] = generator.normal(
      scale=deviation, size=shape
    )
    state[f'{norm}.weight'] = generator.uniform(0.5, 1.0, outputs)
    state[f'{norm}.bias'] = generator.normal(scale=0.1, size=outputs)
    state[f'{norm}.running_mean'] = generator.normal(scale=0.1, size=outputs)
    state[f'{norm}.running_var'] = generator.uniform(0.5, 2.0, outputs)

  add('conv1', 'bn1', 7, 3, 64)
  inputs = 64
  for i, outputs in enumerate((64, 128, 256, 512)):
    for j in range(2):
      block = f'layer{i + 1}.{j}'
      add(f'{block}.conv1', f'{block}.bn1', 3, inputs, outputs)
      add(f'{block}.conv2', f'{block}.bn2', 3, outputs, outputs)
      if inputs != outputs:
        skip = f'{block}.downsample'
        add(f'{skip}.0', f'{skip}.1', 1, inputs, outputs)
      inputs = outputs
  return state


def _torch_features(state, x):
  """Returns what torchvision's ResNet-18 has before its last layer."""

  def convolve(x, convolution, norm, stride, border):
    x = tf.pad(x, [[0, 0], [border] * 2, [border] * 2, [0, 0]])
    kernel = state[f'{convolution}.weight'].transpose(2, 3, 1, 0)
    x = tf.nn.conv2d(x, kernel, stride, 'VALID')
    x = (x - state[f'{norm}.running_mean']) / np.sqrt(
      state[f'{norm}.running_var'] + 1e-5
    )
    return x * state[f'{norm}.weight'] + state[f'{norm}.bias']

  x = tf.nn.relu(convolve(x, 'conv1', 'bn1', 2, 3))
  border = [[0, 0], [1, 1], [1, 1], [0, 0]]
  x = tf.nn.max_pool2d(
    tf.pad(x, border, constant_values=-np.inf), 3, 2, 'VALID'
  )
  for i in range(4):
    for j in range(2):
      block, stride = f'layer{i + 1}.{j}', 2 if i and not j else 1
      y = convolve(x, f'{block}.conv1', f'{block}.bn1', stride, 1)
      y = convolve(tf.nn.relu(y), f'{block}.conv2', f'{block}.bn2', 1, 1)
      if stride == 2:
        skip = f'{block}.downsample'
        x = convolve(x, f'{skip}.0', f'{skip}.1', stride, 0)
      x = tf.nn.relu(x + y)
  return tf.reduce_mean(x, axis=[1, 2])


def test_pytorchs_resnet_keeps_what_it_computes(monkeypatch):
  generator = np.random.default_rng(0)
  state = _resnet_state(generator)
  # Tensors of PyTorch become arrays likewise.
  monkeypatch.setitem(
    sys.modules,
    'torch',
    types.SimpleNamespace(load=lambda path, map_location: state),
  )
  exec(compile(_RESNET, 'docs/pretrained.md', 'exec'), {})
  model = toys.build(
    {
      **{'name': 'resnet18', 'stem': 'large', 'normalization': 'affine'},
      'pretrained': {'file': 'resnet18.npz', 'fresh': ('head',)},
    },
    (64, 48, 3),
    10,
  )
  weights = model.initialize((1, 2))
  x = generator.normal(size=(2, 64, 48, 3))
  expected = _torch_features(state, x) @ tf.cast(
    weights['head/kernel'], 'double'
  )
  scale = np.abs(expected).max()
  np.testing.assert_allclose(
    model.apply(weights, x.astype(np.float32)), expected, atol=1e-4 * scale
  )
