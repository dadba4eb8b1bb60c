"""Keras models as functions of weights: equal to Keras's own, or refused."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.core import errors
from tff_algos.models import keras_models
from tff_algos.numerics import unit_dropout
from tff_algos.stages.client import weight_groups

L = tf.keras.layers
_SEED = tf.constant([3, 4])


def _perceptron(input_shape, num_outputs):
  return tf.keras.Sequential(
    [
      L.Input(input_shape),
      L.Dense(5, activation='relu', kernel_initializer='he_normal'),
      L.LayerNormalization(),
      L.Dense(num_outputs, kernel_initializer='orthogonal'),
    ]
  )


def _without_input_layer(input_shape, num_outputs):
  del input_shape
  return tf.keras.Sequential([L.Flatten(), L.Dense(num_outputs)])


def _group_normed(input_shape, num_outputs):
  return tf.keras.Sequential(
    [
      L.Input(input_shape),
      L.Conv2D(4, 3),
      L.GroupNormalization(2),
      L.GlobalAveragePooling2D(),
      L.Dense(num_outputs),
    ]
  )


def _gru(input_shape, num_outputs):
  return tf.keras.Sequential(
    [L.Input(input_shape), L.GRU(4), L.Dense(num_outputs)]
  )


def _lstm(input_shape, num_outputs):
  return tf.keras.Sequential(
    [L.Input(input_shape), L.LSTM(4), L.Dense(num_outputs)]
  )


def _transformer(input_shape, num_outputs):
  ids = L.Input(input_shape, dtype='int32')
  hidden = L.Embedding(num_outputs, 4)(ids)
  attended = L.MultiHeadAttention(2, 2)(hidden, hidden, use_causal_mask=True)
  hidden = L.LayerNormalization()(hidden + attended)
  dense = L.Dense(4)(L.Dense(6, activation='gelu')(hidden))
  hidden = L.LayerNormalization()(hidden + dense)
  return tf.keras.Model(ids, L.Dense(num_outputs)(hidden))


def _two_inputs(input_shape, num_outputs):
  del input_shape
  numbers = L.Input((3,), name='numbers')
  city = L.Input((1,), name='city', dtype='int32')
  embedded = L.Flatten()(L.Embedding(5, 2)(city))
  joined = L.Concatenate()([numbers, embedded])
  return tf.keras.Model([numbers, city], L.Dense(num_outputs)(joined))


def _frozen_embedding(input_shape, num_outputs):
  table = np.arange(8, dtype=np.float32).reshape(4, 2)
  return tf.keras.Sequential(
    [
      L.Input(input_shape, dtype='int32'),
      L.Embedding(4, 2, weights=[table], trainable=False),
      L.Flatten(),
      L.Dense(num_outputs),
    ]
  )


# Build function, input shape, whether clients are stacked.
_NETWORKS = {
  'perceptron': (_perceptron, (6,), True),
  'without an input layer': (_without_input_layer, (2, 3), True),
  'group norm': (_group_normed, (5, 5, 2), False),
  'GRU': (_gru, (4, 2), False),
  'LSTM': (_lstm, (4, 2), False),
  'transformer': (_transformer, (4,), False),
  'two inputs': (_two_inputs, (4,), True),
  'frozen embedding': (_frozen_embedding, (4,), True),
}


def _fill(keras_model, weights):
  """Gives a Keras model the weights of ours."""
  for variable, value in zip(
    keras_model.trainable_weights, weights.values(), strict=True
  ):
    variable.assign(value)


def _inputs(model):
  generator = np.random.default_rng(0)
  x = generator.integers(0, 3, (5, *model.input_shape)).astype(np.float32)
  return tf.cast(x, model.input_dtype)


def _assert_as_keras(build_fn, input_shape, num_outputs, atol=1e-6):
  """Compares names, number and outputs; returns the model."""
  model = keras_models.from_keras(build_fn, input_shape, num_outputs)
  weights = model.initialize(_SEED)
  tf.keras.backend.reset_uids()
  own = build_fn(input_shape, num_outputs)
  x = _inputs(model)
  given = x
  if own.inputs is None or len(own.inputs) == 1:
    own(x)  # Builds it.
  else:
    given = [x[:, :3], x[:, 3:]]
  assert [v.name[:-2] for v in own.trainable_weights] == list(weights)
  counted = sum(int(np.prod(v.shape)) for v in own.trainable_weights)
  assert sum(leaf.numpy().size for leaf in weights.values()) == counted
  _fill(own, weights)
  np.testing.assert_allclose(
    model.apply(weights, x), own(given), rtol=1e-6, atol=atol
  )
  return model


@pytest.mark.parametrize('name', _NETWORKS)
def test_it_computes_what_keras_does(name):
  build_fn, input_shape, vectorizes = _NETWORKS[name]
  model = _assert_as_keras(build_fn, input_shape, 3)
  assert model.vectorizes == vectorizes
  is_sequence = name == 'transformer'
  assert model.label_shape == ((4,) if is_sequence else ())
  assert (model.input_dtype == tf.int32) == (
    name in ('transformer', 'frozen embedding')
  )


@pytest.mark.parametrize(
  'name',
  ['perceptron', 'two inputs', pytest.param('GRU', marks=pytest.mark.verify)],
)
def test_gradients_of_stacked_weights_are_keras_gradients(name):
  build_fn, input_shape, _ = _NETWORKS[name]
  model = keras_models.from_keras(build_fn, input_shape, 3)
  x = _inputs(model)
  alone = [model.initialize(tf.constant([0, i])) for i in range(2)]

  def loss_gradient(weights):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss = tf.reduce_sum(tf.square(model.apply(weights, x)))
    return tape.gradient(loss, weights)

  stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *alone)
  found = tf.function(lambda w: tf.vectorized_map(loss_gradient, w))(stacked)
  own = build_fn(input_shape, 3)
  for i, weights in enumerate(alone):
    _fill(own, weights)
    with tf.GradientTape() as tape:
      given = [x[:, :3], x[:, 3:]] if name == 'two inputs' else x
      loss = tf.reduce_sum(tf.square(own(given)))
    expected = tape.gradient(loss, own.trainable_weights)
    for key, slope in zip(found, expected, strict=True):
      np.testing.assert_allclose(
        found[key][i], tf.convert_to_tensor(slope), rtol=1e-4, atol=1e-5
      )


def test_gradients_of_embeddings_are_dense():
  model = keras_models.from_keras(_two_inputs, (4,), 3)
  weights = model.initialize(_SEED)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss = tf.reduce_sum(model.apply(weights, _inputs(model)))
  slopes = tape.gradient(loss, weights)
  assert all(isinstance(slope, tf.Tensor) for slope in slopes.values())


def test_xla_computes_it():
  model = keras_models.from_keras(_perceptron, (6,), 3)
  weights, x = model.initialize(_SEED), _inputs(model)
  compiled = tf.function(model.apply, jit_compile=True)
  np.testing.assert_allclose(
    compiled(weights, x), model.apply(weights, x), rtol=1e-5, atol=1e-5
  )


@pytest.fixture
def global_seeds():
  yield 5, 6
  tf.random.set_seed(None)


def test_initial_weights_are_of_the_seed_alone(global_seeds):
  models = [keras_models.from_keras(_perceptron, (6,), 3) for _ in range(2)]
  tf.random.set_seed(global_seeds[0])
  in_graph = tf.function(models[0].initialize)(_SEED)
  tf.random.set_seed(global_seeds[1])
  eager = models[1].initialize(_SEED)
  other = models[1].initialize(tf.constant([3, 5]))
  assert list(in_graph) == list(eager)
  for key, value in eager.items():
    np.testing.assert_array_equal(in_graph[key], value)
    is_drawn = key.endswith('kernel')
    assert (other[key].numpy() != value.numpy()).any() == is_drawn
  # Keras's own distributions: rows of an orthogonal kernel, here of rank 3.
  kernel = eager['dense_1/kernel'].numpy()
  np.testing.assert_allclose(kernel.T @ kernel, np.eye(3), atol=1e-5)


def test_no_two_weights_share_a_stream():
  def build(input_shape, num_outputs):
    square = [L.Dense(num_outputs) for _ in range(2)]
    return tf.keras.Sequential([L.Input(input_shape), *square])

  weights = keras_models.from_keras(build, (3,), 3).initialize(_SEED)
  one, other = weights['dense/kernel'], weights['dense_1/kernel']
  assert (one.numpy() != other.numpy()).all()


def test_layers_of_one_name_in_nested_models_are_two_layers():
  def build(input_shape, num_outputs):
    first = _net(L.Dense(5, name='dense', use_bias=False))
    second = tf.keras.Sequential([L.Input((5,)), L.Dense(4, name='dense_2')])
    head = L.Dense(num_outputs, name='dense')
    return tf.keras.Sequential([L.Input(input_shape), first, second, head])

  model = keras_models.from_keras(build, (6,), 3)
  assert list(model.weights_spec()) == [
    *('dense/kernel', 'dense_2/kernel', 'dense_2/bias'),
    *('dense_3/kernel', 'dense_3/bias'),
  ]
  head = weight_groups.weight_names(model, ('last_layer',))
  assert head == ('dense_3/kernel', 'dense_3/bias')


@pytest.mark.parametrize('initializer', ['glorot_uniform', 'lecun_normal'])
def test_initial_weights_have_the_deviation_of_keras(initializer):
  def build(input_shape, num_outputs):
    dense = L.Dense(num_outputs, kernel_initializer=initializer)
    return tf.keras.Sequential([L.Input(input_shape), dense])

  model = keras_models.from_keras(build, (200,), 100)
  drawn = model.initialize(_SEED)['dense/kernel'].numpy()
  seeded = {'class_name': initializer, 'config': {'seed': 1}}
  own = tf.keras.initializers.get(seeded)((200, 100)).numpy()
  # 20,000 draws each: a deviation errs by about 0.5 %.
  assert drawn.std() == pytest.approx(own.std(), rel=0.03)
  assert abs(drawn).max() == pytest.approx(abs(own).max(), rel=0.03)


def test_loaded_weights_are_the_initial_ones(tmp_path):
  saved = _perceptron((6,), 3)
  path = str(tmp_path / 'net.weights.h5')
  saved.save_weights(path)

  def build(input_shape, num_outputs):
    model = _perceptron(input_shape, num_outputs)
    model.load_weights(path)
    return model

  weights = keras_models.from_keras(build, (6,), 3).initialize(_SEED)
  for value, expected in zip(
    weights.values(), saved.get_weights(), strict=True
  ):
    np.testing.assert_array_equal(value, expected)


def test_frozen_weights_are_constants():
  model = keras_models.from_keras(_frozen_embedding, (4,), 3)
  weights = model.initialize(_SEED)
  assert list(weights) == ['dense/kernel', 'dense/bias']
  outputs = model.apply(weights, tf.constant([[0, 1, 2, 3]]))
  expected = np.arange(8, dtype=np.float32) @ weights['dense/kernel'].numpy()
  np.testing.assert_allclose(outputs[0], expected, rtol=1e-5)


def test_frozen_batch_normalization_is_a_constant():
  def build(input_shape, num_outputs):
    norm = L.BatchNormalization(trainable=False)
    model = tf.keras.Sequential([L.Input(input_shape), norm, L.Dense(3)])
    norm.moving_mean.assign(np.arange(6.0))
    return model

  model = keras_models.from_keras(build, (6,), 3)
  weights = model.initialize(_SEED)
  assert list(weights) == ['dense/kernel', 'dense/bias']
  x = _inputs(model)
  expected = (x - np.arange(6, dtype=np.float32)) / np.sqrt(1.001)
  np.testing.assert_allclose(
    _step(model, weights, x), expected @ weights['dense/kernel'], rtol=1e-4
  )


def test_a_layer_adapted_in_build_fn_is_a_constant():
  data = np.random.default_rng(0).normal(3, 2, (50, 6)).astype(np.float32)

  def build(input_shape, num_outputs):
    normalize = L.Normalization()
    normalize.adapt(data)
    return tf.keras.Sequential(
      [L.Input(input_shape), normalize, L.Dense(num_outputs)]
    )

  model = keras_models.from_keras(build, (6,), 3)
  weights = model.initialize(_SEED)
  assert list(weights) == ['dense/kernel', 'dense/bias']
  scaled = (data - data.mean(0)) / data.std(0)
  np.testing.assert_allclose(
    model.apply(weights, data), scaled @ weights['dense/kernel'], atol=1e-4
  )
  kept = {name: leaf.numpy() for name, leaf in weights.items()}
  with tf.Graph().as_default():  # As TFF's graphs are.
    assert model.apply(kept, tf.constant(data)).shape == (50, 3)


def test_values_that_replaced_layers_would_lose_are_refused():
  def build(input_shape, num_outputs):
    normalize = L.Normalization()
    normalize.adapt(np.ones((3, 2), np.float32))
    return keras_models.replace_batch_norm(
      tf.keras.Sequential(
        [L.Input(input_shape), normalize, L.BatchNormalization(), L.Dense(3)]
      )
    )

  with pytest.raises(errors.ConfigError, match='replace first, then adapt'):
    keras_models.from_keras(build, (2,), 3)


def test_an_unrolled_recurrence_is_stacked():
  def build(input_shape, num_outputs):
    gru = L.GRU(3, unroll=True)
    return tf.keras.Sequential([L.Input(input_shape), gru, L.Dense(3)])

  assert keras_models.from_keras(build, (2, 2), 3).vectorizes


def test_a_layer_in_bfloat16_has_float32_weights_and_outputs():
  def build(input_shape, num_outputs):
    dense = L.Dense(num_outputs, dtype='mixed_bfloat16')
    return tf.keras.Sequential([L.Input(input_shape), dense])

  model = keras_models.from_keras(build, (6,), 3)
  weights, x = model.initialize(_SEED), _inputs(model)
  outputs = model.apply(weights, x)
  assert weights['dense/kernel'].dtype == outputs.dtype == tf.float32
  exact = x @ weights['dense/kernel'] + weights['dense/bias']
  assert (outputs.numpy() != exact.numpy()).any()
  np.testing.assert_allclose(outputs, exact, rtol=0.05, atol=0.05)
  # As of models of this project with this option.
  assert model.output_tolerance == 2.0**-5


def _dropout_net(layer):
  def build(input_shape, num_outputs):
    del num_outputs
    return tf.keras.Sequential(
      [L.Input(input_shape), layer(), L.Flatten(), L.Dense(1)]
    )

  return build


def _step(model, weights, x, seed=(1, 2)):
  rows = tf.range(tf.shape(x)[0])
  draws = unit_dropout.Draws(tf.constant(seed), tf.constant(0), rows)
  with unit_dropout.in_step(0.0, draws):
    return model.apply(weights, x)


def test_dropout_has_our_draws_in_training_and_none_elsewhere():
  model = keras_models.from_keras(
    _dropout_net(lambda: L.Dropout(0.5)), (20,), 1
  )
  weights, x = model.initialize(_SEED), tf.ones([4, 20])
  kernel = weights['dense/kernel']
  rows = tf.range(4)
  draws = unit_dropout.Draws(tf.constant([1, 2]), tf.constant(0), rows)
  with unit_dropout.in_step(0.5, draws):
    expected = unit_dropout.drop(x, 0) @ kernel
  found = _step(model, weights, x)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  in_graph = tf.function(lambda: _step(model, weights, x))()
  np.testing.assert_allclose(in_graph, found, rtol=1e-5, atol=1e-6)
  plain = model.apply(weights, x)
  np.testing.assert_allclose(plain, x @ kernel, rtol=1e-5, atol=1e-6)
  assert (found.numpy() != plain.numpy()).all()


def test_a_dropout_layer_draws_anew_at_every_call_of_it():
  def build(input_shape, num_outputs):
    inputs, drop = L.Input(input_shape), L.Dropout(0.5)
    joined = L.Concatenate()([drop(inputs), drop(inputs)])
    return tf.keras.Model(inputs, L.Dense(num_outputs)(joined))

  model = keras_models.from_keras(build, (8,), 16)
  weights = {'dense/kernel': tf.eye(16), 'dense/bias': tf.zeros([16])}
  first, second = tf.split(_step(model, weights, tf.ones([4, 8])), 2, 1)
  assert (first.numpy() != second.numpy()).any()
  # The next step begins with the first call.
  again = _step(model, weights, tf.ones([4, 8]))
  np.testing.assert_array_equal(again[:, :8], first)


@pytest.mark.parametrize(
  ('layer', 'is_shared'),
  [
    (lambda: L.SpatialDropout1D(0.5), True),
    (lambda: L.Dropout(0.5, noise_shape=(None, 1, None)), True),
    (lambda: L.Dropout(0.5), False),
  ],
)
@pytest.mark.parametrize('is_traced', [False, True])
def test_dropout_of_whole_channels(layer, is_shared, is_traced):
  model = keras_models.from_keras(_dropout_net(layer), (6, 8), 1)
  weights = model.initialize(_SEED)
  # Every feature alone, in its own place: what is dropped gives 0.
  x = tf.reshape(tf.eye(48), [48, 6, 8])
  with unit_dropout.in_step(
    0.0,
    unit_dropout.Draws(
      tf.constant([1, 2]), tf.constant(0), tf.zeros([48], tf.int32)
    ),
  ):
    apply = tf.function(model.apply) if is_traced else model.apply
    outputs = apply(weights, x)
  dropped = outputs.numpy().reshape(6, 8) == 0
  assert dropped.any() and not dropped.all()
  assert (dropped == dropped[0]).all() == is_shared


def _subclassed():
  class Net(tf.keras.Model):
    def call(self, inputs):
      return inputs

  return Net()


class _RandomLayer(L.Layer):
  def call(self, inputs):
    return inputs + tf.random.normal(tf.shape(inputs))


class _CountingLayer(L.Layer):
  def build(self, input_shape):
    del input_shape
    self.calls = self.add_weight('calls', (), initializer='zeros')

  def call(self, inputs):
    self.calls.assign_add(1.0)
    return inputs


class _RandomStart(L.Layer):
  def build(self, input_shape):
    self.scale = tf.Variable(tf.random.normal(input_shape[1:]))

  def call(self, inputs):
    return inputs * self.scale


def _net(*layers):
  return tf.keras.Sequential([L.Input((6,)), *layers])


def _drawn_by_numpy(shape, dtype=None):
  return np.random.default_rng().normal(size=shape).astype('float32')


def _open_input():
  first, second = L.Input((3,), name='a'), L.Input((None, 2), name='b')
  joined = L.Concatenate()([first, L.GlobalAveragePooling1D()(second)])
  return tf.keras.Model([first, second], L.Dense(3)(joined))


def _dict_of_inputs():
  inputs = {'b': L.Input((2,), name='b'), 'a': L.Input((4,), name='a')}
  joined = L.Concatenate()(list(inputs.values()))
  return tf.keras.Model(inputs, L.Dense(3)(joined))


def _text_input():
  text = L.Input((6,), dtype='string', name='text')
  return tf.keras.Model(text, L.Dense(3)(L.Hashing(9)(text)))


_OUTSIDE = L.Dense(3)
_OUTSIDE.build((None, 6))


@pytest.mark.parametrize(
  ('build', 'text'),
  [
    (
      lambda: _net(L.BatchNormalization(), L.Dense(3)),
      "layer 'batch_normalization' is batch normalization: .*"
      r'GroupNormalization or .* tff_algos.replace_batch_norm\(model\)',
    ),
    (lambda: _net(_CountingLayer(), L.Dense(3)), "'.*calls:0' is updated when"),
    (
      lambda: _net(L.GaussianNoise(0.1), L.Dense(3)),
      r"'gaussian_noise' \(GaussianNoise\) draws random numbers that the run",
    ),
    (
      lambda: _net(L.Reshape((3, 2)), L.GRU(3, dropout=0.5)),
      r"'.*' \(GRUCell\) draws random numbers",
    ),
    (
      lambda: _net(L.Dropout(0.5, noise_shape=(1, 6)), L.Dense(3)),
      r"'dropout' has noise_shape \(1, 6\), .* must be None",
    ),
    (
      lambda: _net(L.Dropout(1.0), L.Dense(3)),
      "'dropout': rate must leave units, got 1",
    ),
    (
      lambda: _net(
        L.Reshape((3, 2)), L.TimeDistributed(L.Dropout(0.5)), L.Dense(3)
      ),
      "'dropout': dropout needs one row .* 2 examples of the batch, got 6 rows",
    ),
    (
      lambda: tf.keras.Sequential(
        [L.Input(batch_shape=(2, 3, 2)), L.GRU(3, stateful=True)]
      ),
      'is none of the weights of the model: leave out stateful=True',
    ),
    (lambda: _net(_RandomLayer(), L.Dense(3)), r'\(RandomStandardNormal\)'),
    (
      lambda: _net(_RandomStart(), L.Dense(3)),
      'was created with a value, which may be random: use add_weight',
    ),
    (
      lambda: _net(L.Dense(3, kernel_initializer=_drawn_by_numpy)),
      'the initial value of Keras weight .* is random',
    ),
    (
      lambda: _net(L.Dense(3, trainable=False)),
      "initial value of Keras weight 'dense/kernel:0' is random",
    ),
    (
      lambda: _net(L.Dense(3, dtype='float64')),
      "'dense/kernel:0' must be float32, got float64",
    ),
    (
      lambda: _net(L.Dense(3, dtype='mixed_float16', name='half')),
      "layer 'half' computes in float16: .* Use dtype='mixed_bfloat16'",
    ),
    (
      _open_input,
      r'inputs a \(3,\), b \(None, 2\): .* all need a known shape',
    ),
    (
      _dict_of_inputs,
      r'inputs a \(4,\), b \(2,\) in a dict, which Keras sorts: give .* a list',
    ),
    (_text_input, r"'text' \(InputLayer\) reads text or looks up a vocabulary"),
    (
      lambda: _net(L.IntegerLookup(vocabulary=[1]), L.Dense(3)),
      r'\(IntegerLookup\) reads text or looks up a vocabulary: vocabularies be',
    ),
    (lambda: _net(_OUTSIDE), "'kernel:0' was created outside of build_fn"),
    (
      lambda: _net(L.Dense(3, kernel_regularizer='l2')),
      'losses of its layers .* local_training.weight_decay',
    ),
    (
      lambda: _net(L.Dense(3, kernel_constraint='non_neg')),
      "weight 'kernel' has a constraint",
    ),
    (lambda: _net(L.Dense(3, activation='softmax')), 'must return logits'),
    (
      lambda: _net(L.Dense(4)),
      r'must return floats \[batch, ..., 3\].*\(2, 4\)',
    ),
    (lambda: _net(L.Dense(3), L.Softmax()), 'must return logits'),
    (
      lambda: tf.keras.Sequential([L.Input((5,)), L.Dense(3)]),
      r'takes examples of shape \(5,\), but those of the data have \(6,\)',
    ),
    (
      lambda: _two_inputs((), 3),
      r'inputs numbers \(3,\), city \(1,\): its examples are vectors of 4 feat',
    ),
    (_subclassed, "'net' is a subclass without declared inputs"),
    (
      lambda: keras_models.replace_batch_norm(
        tf.keras.Sequential([L.Dense(3), L.BatchNormalization(name='norm')])
      ),
      r"'norm' has no input yet: put tf.keras.Input\(input_shape\) first",
    ),
    (lambda: 3, r'must return a tf.keras.Model, got 3'),
    (lambda: _net(L.Flatten()), "model 'sequential' has no weights to train"),
  ],
)
def test_what_is_no_function_of_weights_and_examples_is_refused(build, text):
  shape = (3, 2) if 'stateful' in text else (6,)
  with pytest.raises(errors.ConfigError, match=text) as raised:
    keras_models.from_keras(lambda *_: build(), shape, 3)
  assert '\n' not in str(raised.value)


def test_a_regression_has_one_prediction_an_example():
  text = r'one output, and is a regression: it must return \[batch, 1\], .*5, 1'
  with pytest.raises(errors.ConfigError, match=text):
    keras_models.from_keras(_perceptron, (5, 3), 1)


def test_precision_is_that_of_the_layers():
  with pytest.raises(errors.ConfigError, match="dtype='mixed_bfloat16'"):
    keras_models.KerasConfig(compute_dtype='bfloat16')


def test_group_norm_takes_the_place_of_batch_norm():
  def build(input_shape, num_outputs):
    return keras_models.replace_batch_norm(
      tf.keras.Sequential(
        [
          L.Input(input_shape),
          L.Conv2D(6, 3, use_bias=False),
          L.BatchNormalization(epsilon=0.01, scale=False, name='norm'),
          L.GlobalAveragePooling2D(),
          L.Dense(num_outputs),
        ]
      ),
      max_groups=4,
    )

  model = _assert_as_keras(build, (5, 5, 1), 3)
  assert list(model.weights_spec()) == [
    *('conv2d/kernel', 'norm/beta', 'dense/kernel', 'dense/bias')
  ]
  norm = build((5, 5, 1), 3).get_layer('norm')
  assert (norm.groups, norm.epsilon) == (3, 0.01)


def test_group_norm_of_dense_layers_has_one_group():
  """Of a group for each unit the outputs would be constant."""
  replaced = keras_models.replace_batch_norm(
    tf.keras.Sequential(
      [L.Input((3,)), L.Dense(8), L.BatchNormalization(name='norm')]
    )
  )
  assert replaced.get_layer('norm').groups == 1


def test_group_norm_has_the_options_of_the_norm():
  options = {
    'trainable': False,
    'dtype': 'mixed_bfloat16',
    'beta_initializer': tf.keras.initializers.Constant(2.0),
    'gamma_initializer': 'zeros',
    'beta_regularizer': 'l2',
    'gamma_regularizer': 'l1',
    'beta_constraint': 'non_neg',
    'gamma_constraint': 'unit_norm',
  }
  norm = L.BatchNormalization(axis=[1], **options)
  replaced = keras_models.replace_batch_norm(_net(norm)).layers[0]
  before, after = norm.get_config(), replaced.get_config()
  assert {name: after[name] for name in options} == {
    name: before[name] for name in options
  }
  # It takes none of the names that are counted.
  tf.keras.backend.reset_uids()
  keras_models.replace_batch_norm(_net(norm))
  assert L.GroupNormalization().name == 'group_normalization'


def test_group_norm_takes_its_place_in_a_nested_model():
  def build(input_shape, num_outputs):
    inner = tf.keras.Sequential(
      [L.Input(input_shape), L.Dense(4), L.BatchNormalization(name='norm')],
      name='body',
    )
    return keras_models.replace_batch_norm(
      tf.keras.Sequential([inner, L.Dense(num_outputs)])
    )

  model = _assert_as_keras(build, (3,), 2)
  assert any('norm/gamma' in name for name in model.weights_spec())
  assert build((3,), 2).get_layer('body').get_layer('norm').groups == 1


def test_a_norm_of_another_axis_is_not_replaced():
  network = tf.keras.Sequential(
    [L.Input((4, 5, 6)), L.BatchNormalization(axis=1)]
  )
  with pytest.raises(errors.ConfigError, match='normalizes the axis .*1.*last'):
    keras_models.replace_batch_norm(network)


@pytest.mark.verify
@pytest.mark.parametrize(
  ('application', 'num_parameters'),
  [('MobileNetV2', 2_236_682), ('ResNet50V2', 23_539_850)]
  + [('EfficientNetB0', 4_020_358)],
)
def test_published_networks_with_group_norm(application, num_parameters):
  def build(input_shape, num_outputs):
    network = getattr(tf.keras.applications, application)(
      input_shape=input_shape,
      weights=None,
      classes=num_outputs,
      classifier_activation=None,
    )
    return keras_models.replace_batch_norm(network)

  model = _assert_as_keras(build, (32, 32, 3), 10)
  sizes = [spec.shape.num_elements() for spec in model.weights_spec().values()]
  assert sum(sizes) == num_parameters
