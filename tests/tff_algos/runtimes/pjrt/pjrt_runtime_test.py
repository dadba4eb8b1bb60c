import dataclasses
import gc
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import accelerator, running_sum, toys
from tff_algos.core import errors
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_connection, pjrt_runtime
from tff_algos.training import loop

_SIZES = [3, 0, 17, 1, 5]


@pytest.mark.parametrize(
  ('block_size', 'positions', 'capacities'),
  [
    (2, [[[2, 4]], [[0, 3]], [[1, 1]]], [20, 4, 1]),
    (4, [[[2, 4, 0, 3]], [[1, 1, 1, 1]]], [20, 1]),
    (50, [[[2, 4, 0, 3, 1, 1, 1, 1]]], [20]),
  ],
)
def test_blocks_are_nearly_equal_and_few_sizes(
  block_size, positions, capacities
):
  population = np.array([*_SIZES, 20, 4, 32 + 1])
  groups = pjrt_runtime.deal(np.array(_SIZES), block_size, population)
  assert [group.positions.tolist() for group in groups] == positions
  assert [group.capacity for group in groups] == capacities
  flat = np.concatenate([group.positions.ravel() for group in groups])
  real = np.concatenate([group.is_real.ravel() for group in groups])
  assert sorted(flat[real]) == [0, 1, 2, 3, 4]


@accelerator.needed
@pytest.mark.parametrize('vectorizes', [True, False])
def test_every_aggregate_state_and_metric_is_that_of_the_debug_runtime(
  vectorizes,
):
  """One client is not finite; two rows of the blocks only fill them."""
  algorithm = running_sum.algorithm(vectorizes)
  clients = [[1.0], [2.0, 3.0], [], [float('nan')], [4.0, 5.0, 6.0], [7.0]]
  source = running_sum.source(*clients)
  config = pjrt_config.PjrtConfig(clients_per_block=4)
  with pjrt_runtime.PjrtRuntime(algorithm, len(clients), config) as runtime:
    *states, outputs = toys.run_rounds(algorithm, source, 2, runtime=runtime)
  *expected, expected_outputs = toys.run_rounds(algorithm, source, 2)
  tf.nest.map_structure(np.testing.assert_array_equal, states, expected)
  for output, other in zip(outputs, expected_outputs, strict=True):
    assert output.num_invalid == other.num_invalid == 1
    toys.assert_outputs_close(output, other, rtol=1e-6)
  # By hand: the total is 28 after the first round, 28 + 28 + 5 * 28 after two.
  assert states[0].total == 196


@accelerator.needed
def test_a_split_leaves_the_device_with_its_source():
  """As those of the sessions of a sweep, which share a runtime."""
  algorithm = running_sum.algorithm()
  with pjrt_runtime.PjrtRuntime(algorithm, 3) as runtime:

    def total(*values):
      source = running_sum.source(*([value] for value in values))
      state, *_ = toys.run_rounds(algorithm, source, 1, runtime=runtime)
      return state.total, runtime._keep_split(source)[0]

    totals, names = zip(total(1, 2, 3), total(4, 5, 6), strict=True)
    assert totals == (6, 15)
    assert len({*names}) == 2
    gc.collect()
    (program,) = runtime._connection._programs.values()
    for name in names:
      with pytest.raises(
        errors.RuntimeFailureError, match=f"KeyError: '{name}'"
      ):
        runtime._connection.run(
          program, [name], 0, 0, [], [], [np.zeros([1, 1], np.float32)]
        )


@pytest.mark.verify
@accelerator.needed
def test_what_was_compiled_after_other_traces_is_not_compiled_again(tmp_path):
  cache = tmp_path / 'cache'
  config = pjrt_config.PjrtConfig(cache=str(cache))
  source = running_sum.source([1.0], [2.0, 3.0], [4.0])

  def compiled():
    algorithm = running_sum.algorithm()
    with pjrt_runtime.PjrtRuntime(algorithm, 3, config) as runtime:
      toys.run_rounds(algorithm, source, 2, runtime=runtime)
    return {path.name for path in cache.glob('*-cache')}

  first = compiled()
  assert first
  assert compiled() == first


def _rounds(algorithm, runtime, source, tmp_path):
  """Returns totals, and the states at the end, of rounds of any cohorts.

  The second is run again, as after a failure.
  """
  store = loop.build_store(algorithm, source.population, 0, tmp_path, 'memory')
  server_state = loop.initial_server_state(algorithm, 6, 0)
  phase, totals = algorithm.phases[running_sum.PHASE], []
  for round_num, (cohort, succeeds) in enumerate(
    [([0, 1, 2, 4], 1), ([4, 3, 0], 0), ([4, 3, 0], 1), ([0, 1, 2, 3, 4, 5], 1)]
  ):
    call = running_sum.phase_call(cohort, np.arange(len(cohort)))
    output = loop.run_call(
      runtime, phase, source, store, server_state, call, round_num, 0
    )
    if succeeds:
      store.commit()
      server_state = output.server_state
      totals.append(float(server_state.total))
    else:
      store.discard()
  return totals, store


@accelerator.needed
@pytest.mark.parametrize(
  'devices',
  [pytest.param((), marks=pytest.mark.verify), ('CPU:0', 'CPU:1')],
)
def test_states_stay_on_the_device_between_any_cohorts(
  devices, tmp_path, monkeypatch
):
  clients = [[1.0], [2.0, 3.0], [4.0], [5.0, 6.0, 7.0], [8.0, 9.0], [7.0]]
  source = running_sum.source(*clients)
  config = pjrt_config.PjrtConfig(clients_per_block=2)
  algorithm = running_sum.algorithm()
  fetched = []
  fetch = pjrt_connection.Connection.fetch
  monkeypatch.setattr(
    pjrt_connection.Connection,
    'fetch',
    lambda self, name: fetched.append(name) or fetch(self, name),
  )
  with pjrt_runtime.PjrtRuntime(algorithm, 6, config, devices) as runtime:
    totals, store = _rounds(algorithm, runtime, source, tmp_path)
    assert not fetched
  # What was there when the worker ended: the last round's, and no more.
  assert len(fetched) == 3
  debug = debug_runtime.DebugRuntime(algorithm, 6)
  expected, other = _rounds(algorithm, debug, source, tmp_path)
  assert totals == expected
  everyone = np.arange(6)
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    cohort_lib.to_numpy(store.load(everyone)),
    cohort_lib.to_numpy(other.load(everyone)),
  )


@pytest.mark.verify
@accelerator.needed
def test_what_does_not_vectorize_by_itself_is_looped_over_on_a_cpu(monkeypatch):
  algorithm = running_sum.algorithm(vectorizes=False)
  compiled = []
  compile_ = pjrt_connection.Connection.compile
  monkeypatch.setattr(
    pjrt_connection.Connection,
    'compile',
    lambda self, program: (
      compiled.append(program.name.split(', ')[0]) or compile_(self, program)
    ),
  )

  def run(form):
    compiled.clear()
    config = pjrt_config.PjrtConfig(form=form)
    with pjrt_runtime.PjrtRuntime(algorithm, 3, config) as runtime:
      source = running_sum.source([1.0], [2.0], [3.0])
      state, *_ = toys.run_rounds(algorithm, source, 1, runtime=runtime)
    assert state.total == 6
    return compiled

  assert run('auto') == ['add in a loop']
  assert run('vectorized') == ['add at once']


@accelerator.needed
def test_what_cannot_be_lowered_is_refused_before_the_first_round():
  """Also of a phase that the first round does not have."""

  def work(message, client_input, client_state, data, seed):
    output = running_sum.client_work(
      message, client_input, client_state, data, seed
    )
    length = tf.strings.length(tf.strings.as_string(data.x[0, 0]))
    value = output.result['value'] + tf.cast(length, tf.float32)
    return output._replace(result={**output.result, 'value': value})

  algorithm = running_sum.algorithm(vectorizes=False)
  phase = algorithm.phases[running_sum.PHASE]
  later = phase._replace(name='later', client_work=work)
  algorithm = dataclasses.replace(
    algorithm, phases={**algorithm.phases, 'later': later}
  )
  source = running_sum.source([1.0], [2.0], [3.0])
  with (
    pjrt_runtime.PjrtRuntime(algorithm, 3) as runtime,
    pytest.raises(errors.ConfigError, match=r"'later'.*AsString"),
  ):
    toys.run_rounds(algorithm, source, 1, runtime=runtime)


@pytest.mark.parametrize(
  ('platform', 'memory', 'expected'),
  [
    ('cpu', 1 << 40, 50),
    ('gpu', 1 << 40, 1000),
    # A client takes six copies of an upload of four numbers, and six examples
    # of three: x, y and the mask.
    ('gpu', 4 * 7 * 4 * (6 * 4 + 6 * 3), 7),
    ('gpu', 1, 1),
    ('gpu', 0, 50),  # Where jax reports none.
  ],
)
def test_blocks_fill_a_quarter_of_an_accelerator(
  platform, memory, expected, monkeypatch
):
  sizes = []
  monkeypatch.setattr(
    pjrt_runtime,
    'deal',
    lambda num_examples, size, population: sizes.append(size) or [],
  )
  connection = mock.MagicMock(
    platform=platform, device_bytes=memory, memory_bytes=memory
  )
  connection.finish.side_effect = KeyboardInterrupt
  algorithm = running_sum.algorithm()
  runtime = pjrt_runtime.PjrtRuntime(algorithm, 2, connection=connection)
  source = running_sum.source([1.0] * 6, [2.0])
  with pytest.raises(KeyboardInterrupt), runtime:
    toys.run_rounds(algorithm, source, 1, runtime=runtime)
  assert sizes == [expected]


@pytest.mark.parametrize(
  ('platform', 'form', 'vectorizes', 'words'),
  [
    ('gpu', 'auto', False, 'at once'),
    ('cpu', 'auto', False, 'one after the other'),
    ('cpu', 'auto', True, 'at once'),
    ('cpu', 'vectorized', False, 'at once'),
    ('gpu', 'loop', True, 'one after the other'),
  ],
)
def test_convolutions_are_looped_over_on_a_cpu_or_if_named(
  platform, form, vectorizes, words, caplog
):
  runtime = pjrt_runtime.PjrtRuntime(
    running_sum.algorithm(vectorizes=vectorizes),
    2,
    pjrt_config.PjrtConfig(form=form),
    connection=mock.MagicMock(platform=platform),
  )
  with caplog.at_level('INFO', logger='absl'), runtime:
    assert f'of a block are computed {words} ' in caplog.text


@pytest.mark.parametrize(
  ('platform', 'expected'), [('gpu', 'H100, jax 1'), ('cpu', '')]
)
def test_an_accelerator_is_named_a_cpu_is_not(platform, expected):
  connection = mock.MagicMock(platform=platform, device_kind='H100, jax 1')
  runtime = pjrt_runtime.PjrtRuntime(
    running_sum.algorithm(), 2, connection=connection
  )
  assert runtime.accelerator == expected


@accelerator.needed
def test_unknown_devices_are_refused():
  runtime = pjrt_runtime.PjrtRuntime(
    running_sum.algorithm(), 3, devices=('GPU:7', 'CPU:0')
  )
  with (
    pytest.raises(errors.ConfigError, match="'GPU:7'.* it sees: CPU:0"),
    runtime,
  ):
    pass
