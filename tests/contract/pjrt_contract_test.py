"""The runtime `pjrt` with models and options that the others do not have."""

import pytest
import tensorflow as tf

from tests.testing import accelerator, contract, toys
from tff_algos.algorithms import registry
from tff_algos.core import model as model_lib
from tff_algos.models import registry as models
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime

pytestmark = [pytest.mark.verify, accelerator.needed]

_DEVICES = ('CPU:0', 'CPU:1')


def _pjrt(algorithm, devices=_DEVICES, **options):
  config = pjrt_config.PjrtConfig(clients_per_block=2, **options)
  return pjrt_runtime.PjrtRuntime(
    algorithm, len(contract.SIZES), config, devices
  )


@pytest.mark.parametrize(
  'name', ['fed_soft', 'filter_decomposition', 'per_fed_avg', 'ppfl']
)
def test_convolutions_computed_at_once_agree_with_a_loop(name):
  """With exact Per-FedAvg, also gradients of gradients."""
  with contract.Case(name, 'convolution') as case:
    with _pjrt(case.algorithm, form='vectorized') as runtime:
      contract.assert_close(case.run(runtime), case.expected)


@pytest.mark.parametrize(
  ('section', 'form'),
  [
    ({'name': 'mlp', 'hidden_sizes': [5]}, 'auto'),
    ({'name': 'letters_cnn'}, 'loop'),
    ({'name': 'letters_cnn'}, 'vectorized'),
  ],
)
def test_bfloat16_rounds_as_much_as_on_the_vectorized_runtime(section, form):
  """XLA rounds elsewhere, so the errors are compared, not the weights."""

  def end(compute_dtype, build):
    model = models.build_model(
      models.parse_config({**section, 'compute_dtype': compute_dtype}),
      task=model_lib.CLASSIFICATION,
      input_shape=(4, 4, 1),
      num_outputs=3,
    )
    algorithm = registry.build_algorithm(
      registry.parse_config(contract.section('fed_avg', 'mlp')), model
    )
    with build(algorithm, len(contract.SIZES)) as runtime:
      source = contract.build_source()
      state, *_ = toys.run_rounds(algorithm, runtime, source, 2)
    leaves = tf.nest.flatten(state.model_weights)
    return tf.concat([tf.reshape(leaf, [-1]) for leaf in leaves], 0)

  exact = end('float32', toys.graph_runtime)
  expected = tf.norm(end('bfloat16', toys.graph_runtime) - exact)
  found = tf.norm(
    end(
      'bfloat16',
      lambda algorithm, _: _pjrt(algorithm, (), form=form),
    )
    - exact
  )
  assert expected / 4 < found < 2 * expected
