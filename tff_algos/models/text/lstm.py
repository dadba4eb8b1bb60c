"""Two-layer LSTM over token ids: next character, or sentiment of a tweet.

Both are models of LEAF (Caldas et al. 2018, arXiv:1812.01097) as FedProx (Li et
al. 2020, arXiv:1812.06127) and CMFL (Che et al., arXiv:2108.00365) train them.
The second layer's output at the last step goes through dense layers without
activation.

  character_lstm  a trained embedding of 8 numbers per character; one dense
                  layer to the characters. With 80 characters 132,720
                  parameters, and 817,872 with 256 units
  word_lstm       a fixed embedding of 300 numbers per word, see `embeddings`;
                  a dense layer of 30 units, and one to the classes. With two
                  classes 243,861 parameters, and 1,103,421 with 256 units

CMFL's paper has 100 units for characters and 256 for words; its authors' code
has the reverse. Padding is read as a word whose embedding is zeros.
"""

import dataclasses
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options
from tff_algos.models.text import embeddings, recurrent

_NUM_LAYERS = 2


@dataclasses.dataclass(frozen=True)
class LstmConfig(model_options.ModelConfig):
  """Options of both models, besides `model_options.ModelConfig`.

  Attributes:
    hidden_size: Units of each LSTM layer, >= 1.
    recurrence: `'fused'` or `'unrolled'`, see `recurrent`, with equal outputs.
      Second derivatives, XLA and bfloat16 inside the layers need
      `'unrolled'`.
  """

  hidden_size: int = 100
  recurrence: str = recurrent.FUSED

  def __post_init__(self):
    super().__post_init__()
    checks.check_int('hidden_size', self.hidden_size, minimum=1)
    checks.check_one_of('recurrence', self.recurrence, recurrent.RECURRENCES)


@dataclasses.dataclass(frozen=True)
class CharacterLstmConfig(LstmConfig):
  """Options of the model of characters, besides `LstmConfig`.

  Attributes:
    embedding_size: Length of a character's vector, >= 1.
  """

  embedding_size: int = 8

  def __post_init__(self):
    super().__post_init__()
    checks.check_int('embedding_size', self.embedding_size, minimum=1)


@dataclasses.dataclass(frozen=True)
class WordLstmConfig(LstmConfig):
  """Options of the model of words, besides `LstmConfig`.

  Attributes:
    embeddings_file: Text file of word vectors, such as GloVe's
      glove.6B.300d.txt, not compressed; see `embeddings.read`. '' draws the
      vectors at random, for tests and comparisons: they carry no similarity
      between words.
    embedding_size: Length of a word's vector, >= 1.
    embeddings_seed: Seed of random vectors, >= 0.
    dense_size: Units between the second LSTM layer and the classes, >= 1.
    reference_class: Whether the logit of class 0 is fixed to 0. With two
      classes one logit remains, as in the authors' models.
  """

  embeddings_file: str = ''
  embedding_size: int = 300
  embeddings_seed: int = 0
  dense_size: int = 30
  reference_class: bool = True

  def __post_init__(self):
    super().__post_init__()
    for name in ('embedding_size', 'dense_size'):
      checks.check_int(name, getattr(self, name), minimum=1)
    checks.check_int('embeddings_seed', self.embeddings_seed, minimum=0)


def build_character_lstm(
  config: CharacterLstmConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns the model of windows `[characters]`, of ids below `num_outputs`.

  Raises:
    ConfigError: If the input is no sequence.
  """
  layers.check_sequence('character_lstm', input_shape)

  def initialize(seed):
    shape = [num_outputs, config.embedding_size]
    return OrderedDict(
      embedding=layers.xavier_normal(seed, 0, shape),
      **_lstm_weights(seed, config.embedding_size, config.hidden_size),
      **_dense_weights(seed, 0, config.hidden_size, num_outputs),
    )

  def apply(weights, x):
    vectors = layers.embed(weights['embedding'], tf.transpose(x))
    last = _last_output(weights, vectors, config.recurrence)
    return layers.apply_dense(weights, 'dense_0', last)

  return _model(
    'character_lstm', config, input_shape, num_outputs, initialize, apply
  )


def build_word_lstm(
  config: WordLstmConfig,
  input_shape: tuple[int, ...],
  num_outputs: int,
  words: embeddings.WordIds,
) -> model_lib.Model:
  """Returns the model of texts `[places]` of the ids of `words`.

  Raises:
    ConfigError: If the input is no sequence, `words` has no word, or the
      embeddings file is invalid.
  """
  layers.check_sequence('word_lstm', input_shape)
  table = _word_vectors(config, words)
  # The logit of the reference class is constant and has no weights.
  num_logits = num_outputs - config.reference_class

  def initialize(seed):
    return OrderedDict(
      **_lstm_weights(seed, config.embedding_size, config.hidden_size),
      **_dense_weights(seed, 0, config.hidden_size, config.dense_size),
      **_dense_weights(seed, 1, config.dense_size, num_logits),
    )

  def apply(weights, x):
    dtype = weights['dense_0/kernel'].dtype
    vectors = tf.gather(tf.constant(table, dtype), tf.transpose(x))
    last = _last_output(weights, vectors, config.recurrence)
    hidden = layers.apply_dense(weights, 'dense_0', last)
    logits = layers.apply_dense(weights, 'dense_1', hidden)
    return tf.pad(logits, [[0, 0], [num_outputs - num_logits, 0]])

  return _model(
    'word_lstm', config, input_shape, num_outputs, initialize, apply
  )


def _model(name, config, input_shape, num_outputs, initialize, apply):
  return model_lib.Model(
    name,
    model_lib.CLASSIFICATION,
    input_shape,
    num_outputs,
    initialize,
    apply,
    vectorizes=config.recurrence == recurrent.UNROLLED,
    input_dtype=tf.int32,
  )


def _word_vectors(config, words):
  if not any(words):
    raise errors.ConfigError(
      "word_lstm needs the data set's vocabulary, but its manifest has none: "
      'take a source of words, such as sentiment140, or a Keras model with an '
      'Embedding (docs/own_models.md). If the whole numbers of arrays are '
      'quantities, write floats.'
    )
  if config.embeddings_file:
    return embeddings.read(config.embeddings_file, words, config.embedding_size)
  return embeddings.draw(words, config.embedding_size, config.embeddings_seed)


def _lstm_weights(seed, num_inputs, units):
  weights = OrderedDict()
  for i in range(_NUM_LAYERS):
    weights.update(
      recurrent.initial_weights(
        seed, 1 + i, f'lstm_{i}', units if i else num_inputs, units
      )
    )
  return weights


def _last_output(weights, inputs, recurrence):
  """Returns the output of the last layer and step, `[batch, units]`."""
  hidden = inputs
  for i in range(_NUM_LAYERS):
    hidden = recurrent.lstm(
      hidden, weights[f'lstm_{i}/kernel'], weights[f'lstm_{i}/bias'], recurrence
    )
  return hidden[-1]


def _dense_weights(seed, index, inputs, outputs):
  return layers.dense_weights(
    seed, 1 + _NUM_LAYERS + index, f'dense_{index}', inputs, outputs
  )
