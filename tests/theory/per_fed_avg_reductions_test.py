"""What Per-FedAvg becomes in special cases.

Fallah et al. (2020). Without an inner step it is FedAvg; on quadratics its
variants differ by a known matrix; its finite difference becomes its Hessian.
"""

import numpy as np

from tests.testing import contract, toys
from tff_algos.algorithms import fed_avg, per_fed_avg
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training


def _flat(weights):
  return np.concatenate([leaf.ravel() for leaf in weights.values()])


def test_without_an_inner_step_it_is_fed_avg():
  """Full batches: there is one order of the examples, up to rounding."""
  source, model = contract.build_source(), toys.mlp()
  ours = per_fed_avg.build_per_fed_avg(
    model,
    per_fed_avg.PerFedAvgConfig(
      cohort_size=3,
      variant='exact',
      inner_learning_rate=0.0,
      client_learning_rate=0.1,
      num_local_steps=2,
      batch_size=12,
      weighting='examples',
    ),
  )
  theirs = fed_avg.build_fed_avg(
    model,
    fed_avg.FedAvgConfig(
      cohort_size=3,
      local_training=local_training.LocalTrainingConfig(
        2, 12, optimizers.OptimizerConfig('sgd', 0.1)
      ),
    ),
  )
  found, states, outputs = toys.run_rounds(ours, source, 3)
  expected, _, expected_outputs = toys.run_rounds(theirs, source, 3)
  np.testing.assert_allclose(
    _flat(found.model_weights), _flat(expected.model_weights), atol=1e-6
  )
  for output, other in zip(outputs[::2], expected_outputs, strict=True):
    np.testing.assert_allclose(
      output.client_metrics['loss'], other.client_metrics['loss'], rtol=1e-5
    )
  # And everybody is served the global model, as by FedAvg.
  for state in states:
    np.testing.assert_array_equal(
      _flat(state.personalized_weights), _flat(found.model_weights)
    )


def _update(model, source, variant, **options):
  """Returns w_0 - w_1 of one step of all clients on full batches."""
  algorithm = per_fed_avg.build_per_fed_avg(
    model,
    per_fed_avg.PerFedAvgConfig(
      cohort_size=int(np.count_nonzero(source.population.num_examples)),
      variant=variant,
      num_local_steps=1,
      batch_size=64,
      client_learning_rate=1.0,
      loss_scale=0.5,
      **options,
    ),
  )
  before, _ = toys.initial_states(algorithm, source.population)
  after, _, _ = toys.run_rounds(algorithm, source, 1)
  return _flat(before.model_weights) - _flat(after.model_weights)


def test_on_quadratics_exact_is_first_order_times_a_known_matrix():
  """One client: w_0 - w_1 = beta (I - alpha H) g, with H = X'X / n."""
  source = toys.linear_clients(np.array([[2.0, -1, 3]]), np.ones((1, 1)), [9])
  x = source.examples(0).x.astype(np.float64)
  rate = 0.4
  exact, difference, first_order = (
    _update(
      toys.linear(3), source, variant, inner_learning_rate=rate, **options
    )
    for variant, options in (
      ('exact', {}),
      # Exact on quadratics, whatever the step.
      ('hessian_free', {'finite_difference_step': 0.7}),
      ('first_order', {}),
    )
  )
  expected = (np.eye(3) - rate * x.T @ x / len(x)) @ first_order
  np.testing.assert_allclose(exact, expected, rtol=1e-5)
  np.testing.assert_allclose(difference, expected, rtol=1e-4)
  assert np.abs(exact - first_order).max() > 0.1


def test_the_finite_difference_becomes_the_hessian():
  """Softmax regression; the error falls with the square of the step."""
  source = contract.build_source((7, 0, 1, 12, 4))
  model = toys.logistic()
  rate = {'inner_learning_rate': 0.5}
  exact = _update(model, source, 'exact', **rate)
  wide, narrow = (
    np.abs(
      _update(
        model, source, 'hessian_free', finite_difference_step=step, **rate
      )
      - exact
    ).max()
    for step in (0.8, 0.2)
  )
  left_out = np.abs(_update(model, source, 'first_order', **rate) - exact).max()
  # A quarter of the step: a sixteenth of the error.
  assert 12 < wide / narrow < 20
  assert narrow < 0.05 * left_out
