"""The cases of the contract test: each algorithm with two kinds of model."""

import contextlib
import dataclasses
import functools
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tests.testing import tiny_convolution, toys
from tff_algos.algorithms import registry
from tff_algos.data import schema
from tff_algos.rounds import plans
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime
from tff_algos.runtimes.tff import tff_runtime

# What every algorithm that has such an option gets: small enough for five
# clients, one of which has no example.
_COHORT_SIZES = {'cohort_size': 3, 'cohort_size_per_cluster': 2}
_COMMON = {**_COHORT_SIZES, 'num_clusters': 2}
# The options of an algorithm beyond those.
OPTIONS = {
  'cfl': {
    # Splits in round 2.
    'splitting': {
      'mean_norm_below': 1e9,
      'largest_norm_above': 0.0,
      'first_round': 2,
    },
  },
  'cmfl': {'committee': {'active_rate': 1.0, 'aggregation_rate': 0.7}},
  'ditto': {'proximal_weight': 0.5},
  'fed_dyn': {'proximal_weight': 0.5},
  'filter_decomposition': {
    'host': {'name': 'scaffold', 'cohort_size': 3},
    'local_atoms': {'own': 'atoms_and_head', 'refit_interval': 2},
  },
  'fine_tuning': {'personalization_interval': 2},
  'gossip': {'num_segments': 3, 'num_replicas': 2},
  'l2gd': {'aggregation_prob': 0.5},
  'partial_fed_avg': {
    'schedule': 'private_first',
    'personalization_interval': 2,
  },
  'per_fed_avg': {'variant': 'exact', 'num_local_steps': 2, 'batch_size': 4},
  'pfedkm': {
    'cohort_size': 0,
    'server_mixing': 0.7,
    'k_means': {'num_restarts': 2},
  },
  'pfedme': {'server_mixing': 0.7},
  'ppfl': {
    'cohort_size': 0,
    'membership': {'gradient_weight': 'none'},
    'laplacian': {'weight': 0.01},
    'stationarity_interval': 2,
  },
}
LOCAL_TRAINING = {
  'num_local_epochs': 2,
  'batch_size': 4,
  'optimizer': {'name': 'sgd', 'learning_rate': 0.1},
}
_ENVELOPE_TRAINING = {
  'num_local_steps': 3,
  'batch_size': 4,
  'client_learning_rate': 0.05,
  'proximal_weight': 4.0,
  'num_proximal_steps': 2,
  'personal_learning_rate': 0.1,
}
_KEPT_MOMENTUM = {
  'kept momentum': {
    'local_training': {
      **LOCAL_TRAINING,
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1, 'momentum': 0.5},
      'keeps_optimizer_state': True,
    }
  }
}
_HOST = {'host': {'name': 'fed_avg', 'cohort_size': 3}, 'local_atoms': {}}
# Every option that changes what travels, what is kept or the phases of a round:
# algorithm -> case -> options in place of those above.
VARIANTS = {
  'cfl': _KEPT_MOMENTUM,
  'fed_avg': {
    **_KEPT_MOMENTUM,
    'momentum': {'server_optimizer': {'name': 'sgd', 'momentum': 0.5}},
    'adam': {'server_optimizer': {'name': 'adam', 'learning_rate': 0.1}},
  },
  'fed_em': {
    **_KEPT_MOMENTUM,
    'k-means++': {'initialization': {'mode': 'k-means++'}},
    'warm_start': {'initialization': {'mode': 'warm_start', 'num_rounds': 1}},
  },
  'fed_soft': {'mixed_center': {'download': 'mixed_center'}},
  'filter_decomposition': {
    'persist': {
      **_HOST,
      'schedule': {'slow_period': 3, 'fast_rounds': 'persist'},
    },
    'freeze': {
      **_HOST,
      'schedule': {'slow_period': 2, 'fast_rounds': 'freeze'},
      'local_atoms': {
        'own': 'atoms',
        'in_every_round': False,
        'refit_interval': 2,
      },
    },
    'balanced_factors': {**_HOST, 'averaging': 'balanced_factors'},
    'kernels': {**_HOST, 'averaging': 'kernels'},
  },
  'ifca': {
    'k-means++': {'initialization': {'mode': 'k-means++'}},
    'warm_start': {'initialization': {'mode': 'warm_start', 'num_rounds': 1}},
    'gradients': {'averaging': 'gradients'},
  },
  'pfedkm': {
    'personalized_model': {
      'cluster_on': 'personalized_model',
      'local_training': {**_ENVELOPE_TRAINING, 'kept': 'personalized'},
    },
    'local': {'local_training': {**_ENVELOPE_TRAINING, 'kept': 'local'}},
    'one cluster': {'num_clusters': 1},
  },
  'pfedme': {
    kept: {'local_training': {**_ENVELOPE_TRAINING, 'kept': kept}}
    for kept in ('both', 'local')
  },
  'ppfl': {
    **_KEPT_MOMENTUM,
    'random_block': {
      'schedule': 'random_block',
      'shared_prob': 0.8,  # Three rounds draw both blocks.
      'membership': {'gradient_weight': 'client_weight', 'learning_rate': 1.0},
      'laplacian': {
        'weight': 0.01,
        'affinity': 'shifted_cosine',
        'count_noise': 1.0,
      },
    },
    'shared_first': {
      'schedule': 'shared_first',
      'canonical': ('last_layer',),
      'mixing': 'probabilities',
      'membership': {'batch_size': 4, 'num_epochs': 2},
      'laplacian': {'weight': 0.1, 'affinity': 'uniform', 'form': 'degree'},
    },
    'membership alone': {
      'membership': {'batch_size': 4},
      'laplacian': {'weight': 0.1, 'affinity': 'uniform'},
      'num_joint_rounds': 2,
    },
    'no penalty': {'laplacian': {'weight': 0.0}},
  },
}
# Of algorithms that do not train by epochs.
OTHER_TRAINING = {
  'pfedkm': {**_ENVELOPE_TRAINING, 'kept': 'both'},
  'pfedme': _ENVELOPE_TRAINING,
}
SIZES = (7, 0, 1, 12, 4)
NUM_ROUNDS = 3
NUM_SHAPE_ROUNDS = 2
# Runtimes add up the same float32 numbers in different orders.
TOLERANCE = {'rtol': 1e-5, 'atol': 1e-5}


MODELS = {
  'logistic': toys.logistic,
  'mlp': toys.mlp,
  'convolution': tiny_convolution.build,
}


def build_source(sizes=SIZES, **replaced: np.ndarray) -> toys.ToySource:
  """Clients with images of three classes; `c3=x` replaces client 3's images."""
  clients = toys.image_clients(len(sizes), seed=4)
  large = [clients.examples(i) for i in range(len(sizes))]
  pool = [np.concatenate(arrays) for arrays in zip(*large, strict=True)]
  made = []
  for i, size in enumerate(sizes):
    rows = (np.arange(size) + 5 * i) % len(pool[1])
    x = replaced.get(f'c{i}', pool[0][rows])
    made.append(schema.Examples(x, pool[1][rows], pool[2][rows]))
  return toys.ToySource(made)


class Shape(NamedTuple):
  """A population and a cohort of an odd shape, for some of the algorithms.

  Attributes:
    sizes: Examples of each client.
    options: algorithm -> options of its plan.
    replaced: Images, as of `build_source`.
  """

  sizes: tuple[int, ...]
  options: Mapping[str, Mapping[str, Any]] = {
    name: {} for name in registry.ALGORITHMS
  }
  replaced: Mapping[str, np.ndarray] = {}


def options(name: str) -> dict[str, Any]:
  """Returns the options of an algorithm in the contract tests."""
  fields = dataclasses.fields(registry.ALGORITHMS[name].config_class)
  known = {field.name for field in fields}
  return {
    **{key: value for key, value in _COMMON.items() if key in known},
    **OPTIONS.get(name, {}),
  }


def _of_one_client(options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns options with which one client takes part in a phase."""
  found = {}
  for key, value in options.items():
    if isinstance(value, Mapping):
      inner = _of_one_client(value)
      found.update({key: {**value, **inner}} if inner else {})
    elif key in _COHORT_SIZES and value:
      found[key] = 1
  return found


_ONE_CLIENT = {
  name: _of_one_client(options(name)) for name in registry.ALGORITHMS
}
SHAPES = {
  'one example each': Shape((1, 1, 1, 1, 1)),
  'sizes far apart': Shape((1, 0, 33, 2, 20)),
  'one client': Shape((0, 0, 0, 9, 0), _ONE_CLIENT),
  'one client, invalid': Shape(
    (0, 0, 0, 9, 0), _ONE_CLIENT, {'c3': np.full((9, 4, 4, 1), np.nan, 'f')}
  ),
  # Seven slots for four clients.
  'drawn twice': Shape(
    SIZES,
    {
      'fed_soft': {
        'selection': 'with_replacement',
        'cohort_size_per_cluster': 7,
      }
    },
  ),
}


def section(
  name: str, model: str = 'convolution', variant: str = ''
) -> dict[str, Any]:
  """Returns an algorithm's section of a config; not all train in epochs."""
  replaced = VARIANTS[name][variant] if variant else {}
  section = {'name': name, **options(name), **replaced}
  if model != 'convolution':  # The others have no atoms.
    section.pop('local_atoms', None)
  if hasattr(registry.ALGORITHMS[name].config_class, 'local_training'):
    section.setdefault(
      'local_training', OTHER_TRAINING.get(name, LOCAL_TRAINING)
    )
  return section


class Case:
  """One algorithm with one model, and what its runs gave so far.

  Every graph is traced once, here, whatever the tests ask: the vectorized
  runtime has blocks of two clients, so that a cohort of three or five needs both
  of a phase's graphs, that of whole blocks and that of what is left.

  A context manager: the TFF runtime ends with the block.

  Attributes:
    algorithm: The algorithm; its stages count in `traces` how often Python runs
      them.
    traces: (phase, stage) -> number of calls.
    vectorized: The vectorized runtime.
    expected: What it gives.
    log: What it logged while it traced.
  """

  def __init__(self, name: str, model: str, variant: str = ''):
    self._name, self._model = name, model
    self.traces: Counter[tuple[str, str]] = Counter()
    self.algorithm = _counted(
      registry.build_algorithm(
        registry.parse_config(section(name, model, variant)), MODELS[model]()
      ),
      self.traces,
    )
    self.vectorized = toys.block_runtime(self.algorithm, len(SIZES))
    with _records() as self.log:
      self.expected = self.run()
    self._runtimes = contextlib.ExitStack()

  def __enter__(self):
    return self

  def __exit__(self, *exc_info):
    self._runtimes.close()

  @functools.cached_property
  def tff(self):
    return self._runtimes.enter_context(
      tff_runtime.TffRuntime(self.algorithm, len(SIZES))
    )

  @functools.cached_property
  def pjrt(self):
    config = pjrt_config.PjrtConfig(clients_per_block=2)
    return self._runtimes.enter_context(
      pjrt_runtime.PjrtRuntime(self.algorithm, len(SIZES), config)
    )

  @functools.cached_property
  def debug(self):
    return debug_runtime.DebugRuntime(self.algorithm, len(SIZES))

  def run(self, runtime=None, seed=0, source=None):
    return toys.run_rounds(
      self.algorithm,
      source or build_source(),
      NUM_ROUNDS,
      seed,
      runtime=runtime or self.vectorized,
    )

  def run_shape(self, shape: Shape, runtime):
    """Runs the case in another shape with the graphs that it has traced."""
    _, options = registry.parse_config(
      {**section(self._name, self._model), **shape.options[self._name]}
    )
    build = registry.ALGORITHMS[self._name].build
    other = build(MODELS[self._model](), options)
    return toys.run_rounds(
      dataclasses.replace(self.algorithm, plan_round=other.plan_round),
      build_source(shape.sizes, **shape.replaced),
      NUM_SHAPE_ROUNDS,
      runtime=runtime,
    )

  @functools.cached_property
  def debugged(self):
    """What the debug runtime gives."""
    return self.run(self.debug)

  def calls(self):
    """Yields (server state before, client states, call) of the rounds."""
    source = build_source()
    server_state, states = toys.initial_states(
      self.algorithm, source.population
    )
    for round_num in range(1, NUM_ROUNDS + 1):
      calls = plans.Calls(
        self.algorithm.plan_round(
          server_state, source.population, round_num, 0
        ),
        server_state,
      )
      for call in calls:
        yield calls.server_state, list(states), call, round_num
        calls.server_state = self.run_call(
          calls.server_state, states, call, source, round_num
        ).server_state
      server_state = calls.server_state

  def run_call(self, server_state, states, call, source, round_num):
    phase = self.algorithm.phases[call.phase]
    return toys.run_call(
      self.vectorized, phase, server_state, states, call, (round_num, 0, source)
    )


@contextlib.contextmanager
def _records():
  """Yields a list that gets the messages logged in the block."""
  messages = []
  handler = logging.Handler()
  handler.emit = lambda record: messages.append(record.getMessage())
  logger = logging.getLogger('absl')
  logger.addHandler(handler)
  try:
    yield messages
  finally:
    logger.removeHandler(handler)


def _counted(algorithm, counts):
  """Returns the algorithm with stages that count their calls in `counts`."""

  def counted(key, stage):
    @functools.wraps(stage)
    def run(*arguments):
      counts[key] += 1
      return stage(*arguments)

    return run

  phases = {
    name: phase._replace(
      **{
        stage: counted((name, stage), getattr(phase, stage))
        for stage in ('make_message', 'client_work', 'server_update')
      }
    )
    for name, phase in algorithm.phases.items()
  }
  return dataclasses.replace(algorithm, phases=phases)


def assert_close(actual, expected, *, may_be_invalid=False):
  """Compares (server state, client states, outputs) of two runs."""
  if not may_be_invalid:
    assert_valid(expected)
  for one, other in zip(actual[:2], expected[:2], strict=True):
    assert_all_close(one, other)
  assert len(actual[2]) == len(expected[2])
  for one, other in zip(actual[2], expected[2], strict=True):
    assert_all_close(one.client_metrics, other.client_metrics)
    assert_all_close(one.server_metrics, other.server_metrics)
    assert one.num_invalid == other.num_invalid


def run_on_all_runtimes(algorithm, source, num_rounds=2):
  """Returns what `debug` gives; `vectorized` and `tff` must agree with it."""
  expected = toys.run_rounds(algorithm, source, num_rounds)
  for build in (toys.block_runtime, tff_runtime.TffRuntime):
    with build(algorithm, source.population.num_clients) as runtime:
      found = toys.run_rounds(algorithm, source, num_rounds, runtime=runtime)
      assert_close(found, expected)
  return expected


def assert_all_close(one, other):
  tf.nest.assert_same_structure(one, other)
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, **TOLERANCE), one, other
  )


def assert_valid(run):
  """Checks that a run's states are finite and that no client was invalid.

  States that nothing enters but invalid results are finite and equal, too.
  """
  assert_finite(run[:2])
  assert sum(output.num_invalid for output in run[2]) == 0


def assert_finite(structure):
  for leaf in tf.nest.flatten(structure):
    assert np.isfinite(leaf).all()
