"""The toy of FedSoft's theory: F_s(w) = 1/2 |w - theta_s|^2.

A client's examples are points, its model is one point, and an example's loss
is its squared distance to it. With `loss_scale` 1/2 the client's risk is
1/2 mean |w - x|^2, and one full-batch step of gradient descent with learning
rate 1 / (1 + lambda * sum_s u_s) solves the proximal problem of Eq. 4 exactly.
"""

import dataclasses
from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import model as model_lib
from tff_algos.data import schema
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training


@dataclasses.dataclass(frozen=True)
class PointModel(model_lib.Model):
  """A model that is one point; `apply` returns the way from it to each x."""

  def example_losses(self, outputs, labels):
    return tf.reduce_sum(tf.square(outputs), axis=-1)

  def example_scores(self, outputs, labels):
    return self.example_losses(outputs, labels)


def model(num_dimensions: int) -> PointModel:
  """Returns the model of points in `num_dimensions` dimensions."""
  return PointModel(
    'point',
    model_lib.REGRESSION,
    (num_dimensions,),
    num_dimensions,
    lambda seed: OrderedDict(
      point=tf.random.stateless_normal([num_dimensions], seed)
    ),
    lambda weights, x: x - weights['point'],
    vectorizes=True,
  )


def clients(points_per_client: list[np.ndarray]) -> toys.ToySource:
  """Returns a population whose clients hold these points, `[n, d]` each."""
  return toys.ToySource(
    [
      schema.Examples(
        np.asarray(points, np.float32),
        np.zeros(len(points), np.float32),
        np.zeros(len(points), np.int32),
      )
      for points in points_per_client
    ]
  )


def five(far: int = 12) -> list[np.ndarray]:
  """Returns the points of five clients.

  Their means are (0, 1), (0, -1), (`far`, 0), none, and (2, 0).
  """
  return [
    np.array([[-1, 1], [1, 1]]),
    np.array([[0, -1]]),
    np.array([[far, 1], [far, -1], [far, 0], [far, 0]]),
    np.zeros((0, 2)),
    np.array([[2, 0], [2, 0], [2, 0]]),
  ]


def four() -> list[np.ndarray]:
  """Returns the points of four of them: (0, 1), (12, 0), none, and (2, 0)."""
  first, _, *others = five()
  return [first, *others]


def means(points_per_client: list[np.ndarray]) -> np.ndarray:
  """Returns the mean of each client's points `[N, d]`; of no points, NaN."""
  return np.stack(
    [
      points.mean(axis=0) if len(points) else points.sum(axis=0) + np.nan
      for points in points_per_client
    ]
  )


def mixtures(thetas: np.ndarray, counts: np.ndarray) -> toys.ToySource:
  """Returns clients that hold counts[k, s] copies of theta_s."""
  return clients([np.repeat(thetas, row, axis=0) for row in counts])


def exact_solver(
  proximal_weight: float, batch_size: int
) -> local_training.LocalTrainingConfig:
  """Returns the one step that solves Eq. 4 exactly if sum_s u_s = 1."""
  return local_training.LocalTrainingConfig(
    num_local_epochs=1,
    batch_size=batch_size,
    optimizer=optimizers.OptimizerConfig(
      'sgd', learning_rate=1 / (1 + proximal_weight)
    ),
  )
