"""Tests of augmentation: which images come out."""

import numpy as np
import pytest
import tensorflow as tf

from pipelines.examples import distributions
from tests.testing import index_hash, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors, seeds
from tff_algos.numerics import optimizers
from tff_algos.rounds import evaluation
from tff_algos.runtimes import debug_runtime
from tff_algos.stages.client import augmentation, local_training, objectives

_SEED = seeds.derive_seed(1, 'train', 1, 'c0')
_SHAPE = (5, 7, 2)


def _images(num_images, seed=0):
  generator = np.random.default_rng(seed)
  # Above 0, so that a pixel of the padding is told from one of the image.
  return generator.uniform(1, 2, (num_images, *_SHAPE)).astype(np.float32)


def _augment(images, epoch=0, rows=None, seed=_SEED):
  rows = np.arange(len(images)) if rows is None else rows
  return augmentation.crop_and_flip(
    tf.constant(images),
    tf.constant(seed),
    tf.constant(epoch),
    tf.constant(rows, tf.int32),
  ).numpy()


def _draws(epoch, row):
  """Returns (down, right, whether to flip), by the hash written again."""
  bits = [
    index_hash.random_bits(_SEED, 0x6175676D, epoch, row, number)
    for number in range(3)
  ]
  down, right = (((one >> 16) * 9 >> 16) - 4 for one in bits[:2])
  return down, right, bits[2] >> 31


def _by_hand(image, down, right, flips):
  """Pads with 4 zeros, crops, flips: as one does it to a single image."""
  height, width, _ = image.shape
  padded = np.pad(image, [(4, 4), (4, 4), (0, 0)])
  top, left = 4 + down, 4 + right
  crop = padded[top : top + height, left : left + width]
  return crop[:, ::-1] if flips else crop


def test_images_are_padded_cropped_and_flipped():
  images = _images(40)
  for epoch in (0, 3):
    changed = _augment(images, epoch)
    for row, image in enumerate(images):
      expected = _by_hand(image, *_draws(epoch, row))
      np.testing.assert_array_equal(changed[row], expected)


def test_an_image_depends_on_its_row_and_epoch_and_not_on_its_batch():
  images = _images(6)
  changed = _augment(images)
  np.testing.assert_array_equal(
    _augment(images[[4, 1]], rows=[4, 1]), changed[[4, 1]]
  )
  assert (_augment(images, epoch=1) != changed).any()
  other = seeds.derive_seed(1, 'train', 2, 'c0')
  assert (_augment(images, seed=other) != changed).any()


def test_clients_are_vectorized():
  images = np.stack([_images(4, seed) for seed in range(3)])
  client_seeds = np.stack(
    [seeds.derive_seed(1, 'train', 1, f'c{i}') for i in range(3)]
  )

  @tf.function(autograph=False)
  def augment(images, client_seeds):
    return tf.vectorized_map(
      lambda one: augmentation.crop_and_flip(
        *one, tf.constant(2), tf.constant([3, 0, 2, 1])
      ),
      (images, client_seeds),
      fallback_to_while_loop=False,
    )

  alone = [
    _augment(*pair, seed=seed)
    for pair, seed in zip(
      [(one, 2, [3, 0, 2, 1]) for one in images], client_seeds, strict=True
    )
  ]
  np.testing.assert_array_equal(augment(images, client_seeds), alone)


def test_examples_that_are_no_images_are_refused():
  text = r"'crop_and_flip' needs images .* shape \(7,\); set it to 'none'"
  with pytest.raises(errors.ConfigError, match=text):
    _augment(np.zeros([2, 7], np.float32))


def test_none_is_offered_and_changes_nothing():
  assert augmentation.AUGMENTATIONS['none'] is None


def _train_on_images(capacity, augments, batch_size=3, epochs=2, turns=0):
  """Trains logistic-like weights on 5 images; returns them."""
  images = np.random.default_rng(0).normal(size=(5, 4, 4, 1)).astype('f')
  images, _ = distributions.rotation(turns).transform(images, None)
  padding = np.full([capacity - 5, 4, 4, 1], np.nan, 'f')
  data = algorithm_lib.ClientData(
    tf.constant(np.concatenate([images, padding])),
    tf.range(capacity) % 3,
    tf.cast(tf.range(capacity) < 5, tf.float32),
  )
  model = toys.mlp()
  config = local_training.LocalTrainingConfig(
    epochs,
    batch_size,
    optimizers.OptimizerConfig('sgd', 0.05),
    'crop_and_flip' if augments else 'none',
  )
  start = model.initialize(tf.constant([0, 1]))
  weights, _ = local_training.train(
    objectives.mean_loss(model), start, data, tf.constant(_SEED), config
  )
  return model, start, data, weights


def test_augmentation_is_of_the_epoch_and_the_row_whatever_the_capacity():
  _, _, _, tight = _train_on_images(5, True)
  for capacity in (6, 16):
    _, _, _, weights = _train_on_images(capacity, True)
    tf.nest.map_structure(np.testing.assert_array_equal, weights, tight)
  _, _, _, plain = _train_on_images(5, False)
  assert not np.allclose(plain['dense_0/kernel'], tight['dense_0/kernel'])


@pytest.mark.parametrize('turns', [0, 1])
def test_a_step_takes_the_augmented_images(turns):
  """One full batch: one step along the gradient on the augmented images.

  Those of a distribution that is rotated are rotated first.
  """
  model, start, data, weights = _train_on_images(5, True, 5, 1, turns)
  plain = _train_on_images(5, True, 5, 1, 0)[2]
  np.testing.assert_array_equal(data.x, np.rot90(plain.x, turns, (1, 2)))
  images = augmentation.crop_and_flip(
    data.x, tf.constant(_SEED), tf.constant(0), tf.range(5)
  )
  with tf.GradientTape() as tape:
    tape.watch(start)
    losses = model.example_losses(model.apply(start, images), data.y)
    loss = tf.reduce_mean(losses)
  gradient = tape.gradient(loss, start)
  for name, leaf in start.items():
    np.testing.assert_allclose(
      weights[name], leaf - 0.05 * gradient[name], rtol=1e-5, atol=1e-6
    )


def test_evaluation_augments_nothing():
  """The same trained states get the same scores with augmentation and without."""
  source, indices = toys.image_clients(2), np.arange(2, dtype=np.int32)
  trained, metrics = None, []
  for name in augmentation.AUGMENTATIONS:
    algorithm = fed_soft.build_fed_soft(
      toys.mlp(),
      fed_soft.FedSoftConfig(
        cohort_size_per_cluster=1,
        local_training=local_training.LocalTrainingConfig(augmentation=name),
      ),
    )
    phase = evaluation.build_personalized_evaluation(algorithm)
    call = algorithm_lib.PhaseCall(
      phase.name, indices, indices, algorithm_lib.Cost()
    )
    with debug_runtime.DebugRuntime(algorithm, 2) as runtime:
      if not trained:
        *trained, _ = toys.run_rounds(algorithm, source, 1)
      output = toys.run_call(runtime, phase, *trained, call, (1, 0, source))
      metrics.append(output.server_metrics)
  np.testing.assert_equal(*metrics)
