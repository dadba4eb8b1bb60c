"""Packs cases, to be measured on any machine with Python, jax and NumPy.

python -m benchmarks.accelerator.pack --cases=mlp1000,ifca --out=packed

writes `packed/mlp1000.pyz` and so on, below 64 MiB each. There
`python mlp1000.pyz` measures, see `benchmarks/README.md`.

A file holds what the runtime `pjrt` sends to its worker in a round, recorded
without a worker: programs, messages, states; and the worker's own code, which
the measurement asks as the runtime does. Examples are drawn anew from their
seed. Beside it lies what the rounds by hand need.
"""

import argparse
import dataclasses
import functools
import hashlib
import io
import json
import pathlib
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import algorithms, preparation
from benchmarks import run as run_lib
from benchmarks.accelerator import cases as cases_lib
from benchmarks.contenders import registry
from benchmarks.contenders import runtime as contender
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.rounds import aggregation, phase_types, plans
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.pjrt import (
  held_states,
  lowering,
  pjrt_config,
  pjrt_connection,
  pjrt_runtime,
)
from tff_algos.training import loop

MAX_BYTES = 64 << 20
# Round 1 of some algorithms has phases of its own.
_ROUND = 2
_WORKER = pathlib.Path(pjrt_connection.__file__).parent / 'worker'
_SOURCES = (
  *('benchmarks/__init__.py', 'benchmarks/workload.py'),
  *('benchmarks/contenders/__init__.py', 'benchmarks/contenders/jax_models.py'),
  *(
    f'benchmarks/accelerator/{name}.py'
    for name in ('__init__', 'measure', 'rounds')
  ),
)
_MAIN = """\
import sys
from benchmarks.accelerator import measure
sys.exit(measure.main(sys.argv[0], sys.argv[1:]))
"""


class Recorder(pjrt_connection.Connection):
  """A connection without a worker, which answers with zeros.

  Attributes:
    requests: Header and arrays of each request.
  """

  def __init__(self) -> None:
    """Has recorded nothing yet."""
    super().__init__(pjrt_config.PjrtConfig())
    self.requests: list[tuple[dict[str, Any], list[np.ndarray]]] = []
    self.platform, self.device_kind = 'any', 'recorded'
    self.memory_bytes = self.device_bytes = 1 << 60
    self.is_open = True
    self._results: list[np.ndarray] = []

  def __enter__(self) -> 'Recorder':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    """Ends nothing."""

  def run(
    self,
    program: lowering.Lowered,
    shared: Sequence[str],
    num_sums: int,
    first: int,
    old: Sequence[held_states.Stack],
    new: Sequence[held_states.Stack],
    arrays: Sequence[np.ndarray],
  ) -> None:
    """Records a run; `finish` answers for it."""
    super().run(program, shared, num_sums, first, old, new, arrays)
    end = len(program.outputs) - (len(old[0].types) if old else 0)
    num_blocks = first + len(arrays[0])
    self._results = [
      np.zeros([*([num_blocks] * (i >= num_sums)), *shape], dtype)
      for i, (dtype, shape) in enumerate(program.outputs[:end])
    ]

  def request(
    self, request: str, arrays: Sequence[np.ndarray] = (), **words: Any
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Records a request."""
    self.requests.append(({'request': request, **words}, list(arrays)))
    results = self._results if request == 'finish' else []
    return {'seconds': 0.0}, results


def pack(name: str, path: pathlib.Path) -> None:
  """Packs a case.

  Args:
    name: Of `cases.CASES`.
    path: The file; replaced if it exists.

  Raises:
    ValueError: If the file would be larger than `MAX_BYTES`.
  """
  case = cases_lib.CASES[name]
  arrays = _Arrays()
  algorithm = algorithms.build_algorithm(case.workload)
  with tempfile.TemporaryDirectory() as folder:
    source = contender.build_source(case.workload, case.workload.examples())
    server_state, call = _training_call(algorithm, source, case.workload)
    forms = {
      str(form): _record(
        algorithm, source, server_state, call, case.workload.seed, form, arrays
      )
      for form in case.forms
    }
    store = loop.build_store(
      algorithm, source.population, case.workload.seed, folder, 'memory'
    )
    state = tf.nest.map_structure(lambda leaf: leaf[0], store.load([0]))
  described = {
    'case': name,
    'workload': dataclasses.asdict(case.workload),
    'blocks': case.blocks,
    'forms': forms,
    'result': _result_leaves(algorithm, call, source.population.num_clients),
    'by_hand': {
      'weights': arrays.add_all(
        preparation.cluster_weights(algorithm, server_state)
      ),
      'given': arrays.add_all(_given(call, state, case.workload)),
      'order': arrays.add(
        preparation.orders(case.workload, call.purpose, [_ROUND])[0]
      ),
    },
  }
  made = _archive(described, arrays)
  if len(made) > MAX_BYTES:
    raise ValueError(
      f'{name} would take {len(made) / 2**20:.1f} MiB, more than '
      f'{MAX_BYTES / 2**20:.0f}; take fewer forms or a smaller workload'
    )
  path.write_bytes(made)


def _training_call(
  algorithm: algorithm_lib.FederatedAlgorithm, source: Any, workload: Any
) -> tuple[Structure, algorithm_lib.PhaseCall]:
  """Returns the last phase call of a round, and the state before it.

  The calls before it, such as PPFL's count of labels, are run.
  """
  population = source.population
  server_state = loop.initial_server_state(
    algorithm, population.num_clients, workload.seed
  )
  calls = plans.Calls(
    algorithm.plan_round(server_state, population, _ROUND, workload.seed),
    server_state,
  )
  runtime = debug_runtime.DebugRuntime(algorithm, population.num_clients)
  for call in calls:
    if 'train' in call.purpose or call.purpose == 'joint':
      return calls.server_state, call
    cohort = cohort_lib.Cohort(
      call, _ROUND, workload.seed, source, lambda _: ()
    )
    calls.server_state = runtime.run(
      algorithm.phases[call.phase], calls.server_state, cohort
    ).server_state
  raise ValueError(f'{algorithm.name} trains in none of its phases')


def _record(
  algorithm: algorithm_lib.FederatedAlgorithm,
  source: Any,
  server_state: Structure,
  call: algorithm_lib.PhaseCall,
  seed: int,
  form: cases_lib.Form,
  arrays: '_Arrays',
) -> dict[str, list[Any]]:
  """Returns the requests of a first phase call, and of one like all others."""
  recorder = Recorder()
  config = pjrt_config.PjrtConfig(clients_per_block=form.block, form=form.form)
  phase = algorithm.phases[call.phase]
  num_clients = source.population.num_clients
  store = loop.build_store(algorithm, source.population, seed, '', 'memory')
  recorded = []
  with pjrt_runtime.PjrtRuntime(
    algorithm, num_clients, config, connection=recorder
  ) as runtime:
    for _ in range(2):
      loop.run_call(
        runtime, phase, source, store, server_state, call, _ROUND, seed
      )
      recorded.append(recorder.requests)
      recorder.requests = []
  return {
    name: [
      {
        'header': {key: header[key] for key in header if key != 'drop'},
        'arrays': 'examples'
        if header.get('name', '').startswith('split')
        else [arrays.add(one) for one in sent],
      }
      for header, sent in requests
    ]
    for name, requests in zip(('first', 'later'), recorded, strict=True)
  }


def _result_leaves(
  algorithm: algorithm_lib.FederatedAlgorithm,
  call: algorithm_lib.PhaseCall,
  num_clients: int,
) -> dict[str, Any]:
  """Returns which results are the sum of weights, by name, and its divisor."""
  phase = algorithm.phases[call.phase]
  types = phase_types.types_of(algorithm, phase, num_clients)
  numbers = range(len(tf.nest.flatten(types.sums)))
  sums: Any = tf.nest.pack_sequence_as(types.sums, list(numbers))
  field = next(
    name
    for name, aggregator in phase.aggregation.items()
    if isinstance(
      aggregator, aggregation.WeightedMean | aggregation.ClusterMean
    )
  )
  mean = sums['fields'][field]
  return {
    'value': dict(mean.value.get('canonical', mean.value)),
    'weight': mean.weight,
  }


def _given(
  call: algorithm_lib.PhaseCall, state: Any, workload: Any
) -> dict[str, np.ndarray]:
  """Returns what clients are given besides the weights, stacked by name."""
  inputs = call.client_inputs
  fields = (
    inputs._asdict() if hasattr(inputs, '_asdict') else dict(inputs or {})
  )
  if hasattr(state, 'membership'):
    fields['membership'] = np.stack([state.membership] * workload.num_clients)
  for name, leaf in getattr(state, 'personalized_weights', {}).items():
    fields[f'state/{name}'] = np.broadcast_to(
      leaf, (workload.num_clients, *leaf.shape)
    )
  return fields


class _Arrays:
  """Arrays of an archive; equal ones, and equal rows, are stored once."""

  def __init__(self) -> None:
    self.stored: dict[str, np.ndarray] = {}

  def add(self, array: Any) -> list[Any]:
    """Returns the key, and how often its only row repeats; 0 for whole ones."""
    array, times = np.asarray(array), 0
    if array.ndim > 1 and len(array) > 1 and (array[1:] == array[0]).all():
      array, times = array[0], len(array)
    array = np.ascontiguousarray(array)
    described = f'{array.dtype}{array.shape}'.encode()
    key = hashlib.sha256(described + array.tobytes()).hexdigest()[:16]
    self.stored[key] = array
    return [key, times]

  def add_all(self, arrays: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns the keys by name."""
    return {name: self.add(one) for name, one in arrays.items()}


def _archive(described: dict[str, Any], arrays: _Arrays) -> bytes:
  """Returns a zip file that Python can run."""
  stored, made = io.BytesIO(), io.BytesIO()
  np.savez(stored, **arrays.stored)
  with zipfile.ZipFile(made, 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('__main__.py', _MAIN)
    for name in _SOURCES:
      archive.write(registry.ROOT / name, name)
    for name in ('frames.py', 'worker.py'):
      archive.write(_WORKER / name, name)
    archive.writestr('case.json', json.dumps(described))
    archive.writestr('arrays.npz', stored.getvalue())
  return made.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the program; returns its exit status."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  measured = [name for name in cases_lib.CASES if not name.startswith('tiny')]
  parser.add_argument(
    '--cases',
    type=functools.partial(run_lib.names, 'case', known=cases_lib.CASES),
    default=measured,
    help='names, separated by commas; all but the tiny ones by default',
  )
  parser.add_argument(
    '--out', type=pathlib.Path, required=True, help='folder for the files'
  )
  options = parser.parse_args(arguments)
  options.out.mkdir(parents=True, exist_ok=True)
  for name in options.cases:
    path = options.out / f'{name}.pyz'
    pack(name, path)
    print(f'{path}: {path.stat().st_size / 2**20:.1f} MiB')
  return 0


if __name__ == '__main__':
  sys.exit(main())
