"""Paths of averages of few and many models, on a closed-form loss.

Chen and Qiu (2025), arXiv:2503.08652, section 7.1 and Figure 3a: two classes
around [2, 2] and [-2, -2], one linear model w of two weights, the squared error
to +1 and -1. Clients train apart, and their average after each step is a path;
5 clients in factors stand for 25 models. Readings: the covariance of a class is
the identity; a step sees one fresh example; all start from one w.
"""

import numpy as np

MEAN = np.array([2.0, 2.0])
OPTIMUM = MEAN / 9


def loss(w: np.ndarray) -> np.ndarray:
  """Returns E (w.x - y)^2 = |w|^2 + (w.mu - 1)^2.

  Args:
    w: `[..., 2]`.

  Returns:
    `[...]`, at least 1/9.
  """
  w = np.asarray(w)
  return np.sum(w**2, axis=-1) + (w @ MEAN - 1) ** 2


def average_paths(
  num_models: int,
  num_paths: int,
  num_steps: int,
  *,
  start: np.ndarray,
  learning_rate: float,
  generator: np.random.Generator,
) -> np.ndarray:
  """Returns the average of models that are trained apart, after each step.

  Args:
    num_models: In each average, >= 1.
    num_paths: Averages, each of models of its own.
    num_steps: Of SGD on (w.x - y)^2, each with one example.
    start: Of all models, `[2]`.
    learning_rate: > 0.
    generator: Source of randomness.

  Returns:
    float64 `[num_paths, num_steps + 1, 2]`; the first is `start`.
  """
  models = np.tile(np.asarray(start, np.float64), (num_paths, num_models, 1))
  path = [models.mean(axis=1)]
  for _ in range(num_steps):
    y = generator.choice([-1.0, 1.0], size=(num_paths, num_models))
    x = y[..., None] * MEAN + generator.normal(size=models.shape)
    errors = np.sum(models * x, axis=-1) - y
    models = models - learning_rate * 2 * errors[..., None] * x
    path.append(models.mean(axis=1))
  return np.stack(path, axis=1)
