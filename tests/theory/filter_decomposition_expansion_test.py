"""The product of averages: latent clients, its gap to FedAvg, and its gauge.

Chen and Qiu (2025), arXiv:2503.08652, Eqs. 5-7 and section 5.1.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.models.vision import convolutions
from tff_algos.numerics import filters

_NUM_CLIENTS, _NUM_ATOMS = 4, 3


def _clients(seed=0, spread=1.0):
  """Random factors of four clients around common ones, and weights."""
  generator = np.random.default_rng(seed)

  def draw(*shape):
    return generator.normal(size=shape)

  atoms = draw(5, 5, _NUM_ATOMS), draw(_NUM_CLIENTS, 5, 5, _NUM_ATOMS)
  coefficients = draw(_NUM_ATOMS, 2, 3), draw(_NUM_CLIENTS, _NUM_ATOMS, 2, 3)
  return (
    generator.dirichlet(np.ones(_NUM_CLIENTS)),
    atoms[0] + spread * atoms[1],
    coefficients[0] + spread * coefficients[1],
  )


def _kernel(atoms, coefficients):
  factors = filters.FilterFactors(
    tf.constant(atoms, tf.float32), tf.constant(coefficients, tf.float32)
  )
  return filters.build_kernel(factors).numpy()


def _mean(weights, values):
  return np.tensordot(weights, values, axes=1)


def _both(weights, atoms, coefficients):
  """Returns the mean of the kernels, and the kernel of the mean factors."""
  kernels = [_kernel(*one) for one in zip(atoms, coefficients, strict=True)]
  product = _kernel(_mean(weights, atoms), _mean(weights, coefficients))
  return _mean(weights, kernels), product


def test_the_product_of_means_is_a_mean_of_real_and_latent_clients():
  """m^2 kernels, of which m^2 - m belong to nobody."""
  weights, atoms, coefficients = _clients()
  total, latent, share = 0, 0, 0
  for i in range(_NUM_CLIENTS):
    for j in range(_NUM_CLIENTS):
      both = weights[i] * weights[j]
      total = total + both * _kernel(atoms[j], coefficients[i])
      share += both
      latent += i != j
  _, product = _both(weights, atoms, coefficients)
  np.testing.assert_allclose(product, total, atol=1e-5)
  assert latent == _NUM_CLIENTS**2 - _NUM_CLIENTS == 12
  np.testing.assert_allclose(share, 1)


@pytest.mark.parametrize('common', ['one client', 'atoms', 'coefficients'])
def test_where_it_is_the_mean_of_the_kernels(common):
  weights, atoms, coefficients = _clients()
  if common == 'one client':
    weights = np.eye(_NUM_CLIENTS)[1]
  elif common == 'atoms':
    atoms = np.stack([atoms[0]] * _NUM_CLIENTS)
  else:
    coefficients = np.stack([coefficients[0]] * _NUM_CLIENTS)
  mean, product = _both(weights, atoms, coefficients)
  np.testing.assert_allclose(product, mean, atol=1e-5)


def test_the_gap_is_the_covariance_of_the_factors():
  """And so of second order in how far clients have gone."""
  gaps = []
  for spread in (0.1, 0.05):
    weights, atoms, coefficients = _clients(spread=spread)
    mean, product = _both(weights, atoms, coefficients)
    covariance = sum(
      weight * _kernel(one, other)
      for weight, one, other in zip(
        weights,
        atoms - _mean(weights, atoms),
        coefficients - _mean(weights, coefficients),
        strict=True,
      )
    )
    np.testing.assert_allclose(mean - product, covariance, atol=1e-5)
    gaps.append(np.linalg.norm(covariance))
  np.testing.assert_allclose(gaps[0] / gaps[1], 4, rtol=1e-3)


def _turn(matrix, atoms, coefficients):
  """(alpha, D) -> (alpha R, R^-1 D)."""
  return (
    atoms @ np.linalg.inv(matrix).T,
    np.einsum('rq,qio->rio', matrix.T, coefficients),
  )


def test_turned_factors_are_the_same_kernels_but_must_be_turned_alike():
  weights, atoms, coefficients = _clients()
  generator = np.random.default_rng(1)
  common, *own = generator.normal(size=(1 + _NUM_CLIENTS, 3, 3))
  mean, product = _both(weights, atoms, coefficients)
  inputs = generator.normal(size=(2, 6, 6, 2)).astype(np.float32)
  for matrices, agrees in (([common] * _NUM_CLIENTS, True), (own, False)):
    turned = [
      _turn(*one) for one in zip(matrices, atoms, coefficients, strict=True)
    ]
    new_mean, new_product = _both(
      weights, *map(np.stack, zip(*turned, strict=True))
    )
    # Every client's kernel, and so their mean, is the same in both cases.
    np.testing.assert_allclose(new_mean, mean, rtol=1e-3, atol=1e-3)
    same = np.allclose(new_product, product, rtol=1e-3, atol=1e-3)
    assert same == agrees
    outputs = [
      convolutions.convolve(inputs, kernel.astype(np.float32), 'VALID')
      for kernel in (_kernel(atoms[0], coefficients[0]), _kernel(*turned[0]))
    ]
    np.testing.assert_allclose(*outputs, rtol=1e-2, atol=1e-2)
