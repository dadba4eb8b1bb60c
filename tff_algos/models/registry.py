"""Registry of models by name; plug-ins add theirs by `register_model`."""

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_algos.core import config as config_lib
from tff_algos.core import errors, plugins
from tff_algos.core import model as model_lib
from tff_algos.models import (
  linear,
  mlp,
  model_options,
  precision,
  pretrained,
)
from tff_algos.models.factors import decomposition, low_rank
from tff_algos.models.text import embeddings, lstm, transformer
from tff_algos.models.vision import (
  alexnet,
  convolutional,
  lenet,
  mobilenet,
  normed_convolutions,
  paper_cnns,
  resnet,
)


class Entry(NamedTuple):
  """One registered model.

  Attributes:
    config_class: Its options, a `model_options.ModelConfig`.
    build: (options, input shape, number of outputs) -> Model; if `takes_words`,
      (..., `embeddings.WordIds`) -> Model.
    takes_words: Whether the model needs the word of each id.
    predicts_ids: Whether it embeds the ids that it predicts, and no others.
  """

  config_class: type
  build: Callable[..., model_lib.Model]
  takes_words: bool = False
  predicts_ids: bool = False


MODELS: dict[str, Entry] = {
  'linear_regression': Entry(
    linear.LinearConfig, linear.build_linear_regression
  ),
  'logistic_regression': Entry(
    linear.LogisticConfig, linear.build_logistic_regression
  ),
  'mlp': Entry(mlp.MlpConfig, mlp.build_mlp),
  'letters_cnn': Entry(
    convolutional.ConvolutionalConfig, paper_cnns.build_letters_cnn
  ),
  'cifar_cnn': Entry(
    convolutional.ConvolutionalConfig, paper_cnns.build_cifar_cnn
  ),
  'mobilenet_v2': Entry(
    normed_convolutions.NormedConfig, mobilenet.build_mobilenet_v2
  ),
  'resnet18': Entry(resnet.ResNetConfig, resnet.build_resnet18),
  'lenet': Entry(lenet.LeNetConfig, lenet.build_lenet),
  'alexnet': Entry(alexnet.AlexNetConfig, alexnet.build_alexnet),
  'small_cnn': Entry(
    decomposition.DecomposableConfig, paper_cnns.build_small_cnn
  ),
  'transformer': Entry(
    transformer.TransformerConfig,
    transformer.build_transformer,
    predicts_ids=True,
  ),
  'character_lstm': Entry(
    lstm.CharacterLstmConfig, lstm.build_character_lstm, predicts_ids=True
  ),
  'word_lstm': Entry(
    lstm.WordLstmConfig, lstm.build_word_lstm, takes_words=True
  ),
}


_INPUTS = {tf.float32: 'numbers', tf.int32: 'the ids of tokens'}


def register_model(
  name: str,
  config_class: type[model_options.ModelConfig],
  build: Callable[..., model_lib.Model],
) -> None:
  """Registers a model under a name for configs, as a plug-in does.

  Args:
    name: Name in `config.model`: lower-case letters, digits and underscores.
    config_class: Its options: a `ModelConfig`, for Keras models a
      `KerasConfig`, or a dataclass derived from it.
    build: (options, input shape, number of outputs) -> Model; the number is 1
      for regression.

  Raises:
    ConfigError: If the name is taken or malformed, or the options are of
      another class.
  """
  entry = Entry(config_class, build)
  plugins.register(MODELS, 'model', name, entry, model_options.ModelConfig)


def parse_config(values: Mapping[str, Any]) -> config_lib.Named:
  """Returns a model's name and its options from a config's `model` section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  return config_lib.parse_named('config.model', values, MODELS)


def build_model(
  section: config_lib.Named,
  *,
  task: str,
  input_shape: tuple[int, ...],
  num_outputs: int,
  input_dtype: tf.DType = tf.float32,
  label_shape: tuple[int, ...] = (),
  special_ids: Mapping[str, int] = types.MappingProxyType({}),
  vocabulary: Sequence[str] = (),
) -> model_lib.Model:
  """Builds the model that a config's `model` section names.

  >>> import tff_algos
  >>> section = tff_algos.parse_model({'name': 'mlp', 'hidden_sizes': (16,)})
  >>> model = tff_algos.build_model(
  ...   section, task='classification', input_shape=(4,), num_outputs=3
  ... )
  >>> weights = model.initialize(tf.constant([0, 1]))
  >>> list(weights)
  ['dense_0/kernel', 'dense_0/bias', 'dense_1/kernel', 'dense_1/bias']
  >>> weights['dense_0/kernel'].shape
  TensorShape([4, 16])
  >>> model.apply(weights, tf.zeros([2, 4])).shape
  TensorShape([2, 3])

  Args:
    section: The model's name and its options.
    task: Task of the data set, `'classification'` or `'regression'`.
    input_shape: Shape of one example.
    num_outputs: Number of classes, or 1 for regression.
    input_dtype: int32 for the ids of tokens, else float32.
    label_shape: Shape of one example's label.
    special_ids: Ids of tokens that are not words, by name. If labels are tokens
      at several places, `padding` is not predicted, and no special id is
      scored.
    vocabulary: The words, in the order of their ids, which are all ids except
      `special_ids`.

  Raises:
    ConfigError: If the model solves another task, or takes other inputs, fewer
      ids or other labels.
  """
  name, options = section
  entry = MODELS[name]
  num_ids = len(vocabulary) + len(special_ids)
  if entry.predicts_ids and num_ids > num_outputs:
    raise errors.ConfigError(
      f'config.model.name {name!r} predicts the tokens that it reads, but the '
      f'data set has {num_ids} of them and {num_outputs} classes. Take '
      "'word_lstm', or a Keras model with an Embedding (docs/own_models.md)"
    )
  words = ()
  if entry.takes_words:
    words = (embeddings.word_ids(vocabulary, special_ids),)
  model = entry.build(options, input_shape, num_outputs, *words)
  if model.name != name:
    model = dataclasses.replace(model, name=name)
  if model.task != task:
    raise errors.ConfigError(
      f'config.model.name {name!r} is for {model.task}, but the data set is '
      f"for {task}. Take another model, such as 'mlp', which is for both"
    )
  if model.input_dtype != input_dtype:
    raise errors.ConfigError(
      f'config.model.name {name!r} takes {_INPUTS[model.input_dtype]}, but the '
      f'data set holds {_INPUTS[input_dtype]}'
    )
  if model.label_shape != label_shape:
    raise errors.ConfigError(
      f'config.model.name {name!r} needs labels of shape {model.label_shape}, '
      f'but those of the data set have {label_shape}'
    )
  if vocabulary and not (entry.takes_words or entry.predicts_ids):
    _check_ids(model, num_ids)
  if label_shape:
    model = dataclasses.replace(
      model,
      padding_label=special_ids.get('padding'),
      unscored_labels=tuple(special_ids.values()),
    )
  model = pretrained.start_from(model, options.pretrained)
  if isinstance(options, decomposition.DecomposableConfig):
    model = decomposition.decompose(model, options.decomposition)
    model = low_rank.parametrize(model, options.low_rank)
  return precision.compute_in(model, options.compute_dtype)


def _check_ids(model: model_lib.Model, num_ids: int) -> None:
  """Raises ConfigError unless the model has an embedding of every id."""
  # A GPU would compute with zeros in place of embeddings that do not exist.
  with tf.init_scope(), tf.device('CPU:0'):
    weights = model.initialize(tf.constant([0, 0]))
    try:
      model.apply(weights, tf.fill([1, *model.input_shape], num_ids - 1))
    except tf.errors.InvalidArgumentError as error:
      raise errors.ConfigError(
        f'config.model.name {model.name!r} cannot embed the id {num_ids - 1}, '
        f'but the data set has {num_ids} ids, of words and special tokens: '
        f'give its Embedding input_dim={num_ids}'
      ) from error
