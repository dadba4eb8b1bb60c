"""Registry of runtimes by name."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime, loopback
from tff_algos.runtimes.distributed import process_group
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_runtime
from tff_algos.runtimes.tff import tff_config
from tff_algos.runtimes.vectorized import vectorized_runtime


class Entry(NamedTuple):
  """One registered runtime.

  Attributes:
    build: (algorithm, num_clients, the runtime's options) -> Runtime.
    divides_among: Which of `'devices'` and `'group'` (of processes) `build`
      also takes, among which the clients of a cohort are divided.
  """

  build: Callable[..., cohort_lib.Runtime]
  divides_among: tuple[str, ...] = ()


def _build_tff_runtime(*arguments: Any) -> cohort_lib.Runtime:
  """Builds the TFF runtime, the only one that needs TFF to be installed."""
  try:
    from tff_algos.runtimes.tff import tff_runtime
  except ModuleNotFoundError as error:
    if error.name != 'tensorflow_federated':
      raise
    raise errors.ConfigError(
      "config.runtime.name 'tff' needs the package tensorflow-federated, which "
      "is not installed; install it, or take 'vectorized' or 'debug'"
    ) from error
  return tff_runtime.TffRuntime(*arguments)


RUNTIMES = {
  'tff': Entry(_build_tff_runtime),
  'vectorized': Entry(
    vectorized_runtime.VectorizedRuntime, ('devices', 'group')
  ),
  'pjrt': Entry(pjrt_runtime.PjrtRuntime, ('devices',)),
  'debug': Entry(debug_runtime.DebugRuntime),
}


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
  """Name of the runtime, and the options of each runtime.

  Attributes:
    name: `'vectorized'`, `'tff'`, `'pjrt'` or `'debug'`.
    devices: Devices for client work, such as `('GPU:0', 'GPU:1')`; none uses
      all GPUs, or the CPU if there is no GPU. For `'vectorized'`, and for
      `'pjrt'`, which names them as jax does: `TPU:0`, too.
    gpu_memory_limit_mib: Memory limit of each GPU, in MiB; 0 grows on demand.
      Not for `'pjrt'`.
    peer_timeout_seconds: Maximal wait for the other processes of TF_CONFIG to
      start, > 0.
    peer_speeds: Relative speeds of the processes of TF_CONFIG, > 0, in their
      order: each computes as large a part of a round's clients. None if they
      are alike.
    peer_shards: Whether each of these processes computes the clients of its own
      shards of the dataset, whose number modulo the processes is its index, and
      reads no others; for data that may not leave a place.
    trust_network: Whether processes of TF_CONFIG and TFF workers may be on
      other machines, where TensorFlow and TFF neither authenticate nor encrypt:
      their network must be closed to all others.
    vectorized: Options of the vectorized runtime.
    tff: Options of the TFF runtime.
    pjrt: Options of the runtime `pjrt`.
    debug: Options of the debug runtime.
  """

  name: str = 'vectorized'
  devices: tuple[str, ...] = ()
  gpu_memory_limit_mib: int = 0
  peer_timeout_seconds: float = 300.0
  peer_speeds: tuple[float, ...] = ()
  peer_shards: bool = False
  trust_network: bool = False
  vectorized: vectorized_runtime.VectorizedConfig = (
    vectorized_runtime.VectorizedConfig()
  )
  tff: tff_config.TffConfig = tff_config.TffConfig()
  pjrt: pjrt_config.PjrtConfig = pjrt_config.PjrtConfig()
  debug: debug_runtime.DebugConfig = debug_runtime.DebugConfig()

  def __post_init__(self):
    checks.check_one_of('name', self.name, tuple(RUNTIMES))
    checks.check_int(
      'gpu_memory_limit_mib', self.gpu_memory_limit_mib, minimum=0
    )
    if self.gpu_memory_limit_mib and self.name == 'pjrt':
      raise errors.ConfigError(
        f'gpu_memory_limit_mib={self.gpu_memory_limit_mib} limits the GPU '
        "memory of TensorFlow, not of the runtime 'pjrt': leave it 0, and set "
        'the variable XLA_PYTHON_CLIENT_MEM_FRACTION, which jax reads'
      )
    checks.check_positive('peer_timeout_seconds', self.peer_timeout_seconds)
    for i, speed in enumerate(self.peer_speeds):
      checks.check_positive(f'peer_speeds[{i}]', speed)
    if self.peer_speeds and self.peer_shards:
      raise errors.ConfigError(
        f'peer_speeds={self.peer_speeds} and peer_shards=True: clients are '
        'dealt out by speed, or by their shards'
      )
    if self.devices:
      _check_divides(self.name, 'devices', f'devices={self.devices}')


def build_runtime(
  config: RuntimeConfig,
  algorithm: algorithm_lib.FederatedAlgorithm,
  num_clients: int,
  group: process_group.ProcessGroup = process_group.ALONE,
) -> cohort_lib.Runtime:
  """Builds the configured runtime; enter it before the first round.

  >>> import tff_algos
  >>> model = tff_algos.build_model(
  ...   tff_algos.parse_model({'name': 'linear_regression'}),
  ...   task='regression',
  ...   input_shape=(4,),
  ...   num_outputs=1,
  ... )
  >>> section = tff_algos.parse_algorithm({'name': 'fed_avg'})
  >>> algorithm = tff_algos.build_algorithm(section, model)
  >>> config = tff_algos.RuntimeConfig('debug')
  >>> with tff_algos.build_runtime(config, algorithm, num_clients=8) as runtime:
  ...   print(type(runtime).__name__)
  DebugRuntime

  Args:
    config: Name and options of the runtime.
    algorithm: The algorithm to run.
    num_clients: Size of the population.
    group: The processes that share each cohort.

  Raises:
    ConfigError: If the runtime is not installed, the config needs several
      processes or devices that it does not support, or TFF workers are on other
      machines without `trust_network`.
  """
  entry = RUNTIMES[config.name]
  if config.name == 'tff':
    loopback.require_trust(
      'config.runtime.tff.workers', config.tff.workers, config.trust_network
    )
  if group is not process_group.ALONE:
    _check_divides(config.name, 'group', 'several processes (TF_CONFIG)')
  given: dict[str, Any] = {'devices': config.devices, 'group': group}
  placement = {name: given[name] for name in entry.divides_among}
  options = getattr(config, config.name)
  return entry.build(algorithm, num_clients, options, **placement)


def _check_divides(name: str, among: str, what: str) -> None:
  """Raises ConfigError unless the runtime divides clients as `what` says."""
  if among not in RUNTIMES[name].divides_among:
    able = [
      one for one, entry in RUNTIMES.items() if among in entry.divides_among
    ]
    raise errors.ConfigError(
      f'{what} need config.runtime.name={" or ".join(able)}, got {name!r}'
    )
