"""Causal transformer for next-word prediction at every position.

The Stack Overflow model of Pillutla et al. (2022, arXiv:2204.03809), which
PPFL (arXiv 2310.14337) adopts: word embeddings, times the square root of the
width, plus position embeddings pass a ReLU; then come blocks of attention and
of two dense layers, each with a residual connection followed by layer
normalization; logits are inner products of the output with the embedding of
every word, plus a bias. Attention has no biases, and there is no dropout.
5,731,092 parameters for 20 places and 10,004 words.

Kernels and embeddings are initialized normally with deviation 0.02, scales with
1, offsets and biases with 0.
"""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options
from tff_algos.numerics import index_random

DECODERS = ('tied', 'untied')
_DEVIATION = 0.02
_KERNELS = ('query', 'key', 'value', 'output')


@dataclasses.dataclass(frozen=True)
class TransformerConfig(model_options.ModelConfig):
  """Options of the transformer, besides `model_options.ModelConfig`.

  Attributes:
    num_blocks: Blocks, >= 1.
    width: Length of an embedding, a multiple of `num_heads`.
    num_heads: Attention heads of each block, >= 1.
    hidden_size: Units between the dense layers of a block, >= 1.
    decoder: `'tied'`, the output layer uses the word embeddings; or `'untied'`,
      it has its own kernel, `head/kernel` `[width, words]`, which is
      initialized with the embeddings, as PPFL's canonical decoders need.
  """

  num_blocks: int = 4
  width: int = 256
  num_heads: int = 4
  hidden_size: int = 1024
  decoder: str = 'tied'

  def __post_init__(self):
    super().__post_init__()
    for name in ('num_blocks', 'width', 'num_heads', 'hidden_size'):
      checks.check_int(name, getattr(self, name), minimum=1)
    checks.check_one_of('decoder', self.decoder, DECODERS)
    if self.width % self.num_heads:
      raise errors.ConfigError(
        f'width must be a multiple of num_heads={self.num_heads}, got '
        f'{self.width}'
      )


def build_transformer(
  config: TransformerConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the model of sequences `[places]` of ids below `num_outputs`.

  Raises:
    ConfigError: If the input is no sequence.
  """
  layers.check_sequence('transformer', input_shape)

  def initialize(seed):
    weights = OrderedDict()

    def add(name, *shape):
      weights[name] = tf.random.stateless_normal(
        shape,
        index_random.fold_in(seed, len(weights)),
        stddev=_DEVIATION,
      )

    add('embedding', num_outputs, config.width)
    add('positions', input_shape[0], config.width)
    for i in range(config.num_blocks):
      for kernel in _KERNELS:
        add(f'block_{i}/{kernel}', config.width, config.width)
      _add_norm(weights, f'block_{i}/norm_0', config.width)
      add(f'block_{i}/dense_0/kernel', config.width, config.hidden_size)
      weights[f'block_{i}/dense_0/bias'] = tf.zeros([config.hidden_size])
      add(f'block_{i}/dense_1/kernel', config.hidden_size, config.width)
      weights[f'block_{i}/dense_1/bias'] = tf.zeros([config.width])
      _add_norm(weights, f'block_{i}/norm_1', config.width)
    if config.decoder == 'untied':
      weights['head/kernel'] = tf.transpose(weights['embedding'])
    weights['head/bias'] = tf.zeros([num_outputs])
    return weights

  def apply(weights, x):
    hidden = layers.embed(weights['embedding'], x) * config.width**0.5
    hidden = tf.nn.relu(hidden + weights['positions'])
    for i in range(config.num_blocks):
      hidden = _apply_block(weights, f'block_{i}', hidden, config.num_heads)
    if config.decoder == 'untied':
      logits = layers.dense(hidden, weights['head/kernel'])
    else:
      logits = tf.einsum('btw,vw->btv', hidden, weights['embedding'])
    return logits + weights['head/bias']

  return model_lib.Model(
    'transformer',
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=True,
    input_dtype=tf.int32,
    label_shape=input_shape,
  )


def _add_norm(weights, name, width):
  weights[f'{name}/scale'] = tf.ones([width])
  weights[f'{name}/offset'] = tf.zeros([width])


def _apply_block(weights, name, x, num_heads):
  def normalize(which, values):
    scale, offset = (
      weights[f'{name}/{which}/{part}'] for part in ('scale', 'offset')
    )
    return layers.layer_norm(values, scale, offset)

  attended = _attend(x, [weights[f'{name}/{k}'] for k in _KERNELS], num_heads)
  x = normalize('norm_0', x + attended)
  hidden = layers.apply_dense(weights, f'{name}/dense_0', x)
  hidden = layers.apply_dense(weights, f'{name}/dense_1', tf.nn.relu(hidden))
  return normalize('norm_1', x + hidden)


def _attend(x, kernels, num_heads):
  """Returns causal multi-head attention.

  Args:
    x: `[batch, places, width]`.
    kernels: Of queries, keys, values and outputs, `[width, width]`.
    num_heads: Heads, each of width / num_heads features.
  """
  places, width = x.shape[1:]
  size = width // num_heads

  def split(kernel):
    heads = tf.reshape(layers.dense(x, kernel), [-1, places, num_heads, size])
    heads = tf.transpose(heads, [0, 2, 1, 3])
    # Batch and heads share an axis: stacked over clients and clusters, softmax
    # would otherwise exceed the five axes that TensorFlow allows on a CPU.
    return tf.reshape(heads, [-1, places, size])

  query, key, value = map(split, kernels[:3])
  scores = tf.matmul(query, key, transpose_b=True) / size**0.5
  is_seen = tf.linalg.band_part(tf.ones([places, places], tf.bool), -1, 0)
  scores = tf.where(is_seen, scores, scores.dtype.min)
  mixed = tf.matmul(tf.nn.softmax(scores), value)
  mixed = tf.reshape(mixed, [-1, num_heads, places, size])
  mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, places, width])
  return layers.dense(mixed, kernels[3])
