"""Hardware checks: processor, memory, disk space, GPU and accelerators."""

import json
import os
import pathlib
import re
import shutil

from tff_algos.diagnostics import programs, result

_GIB = 2**30
_LOW_MEMORY_BYTES = 3 * _GIB
_LOW_DISK_BYTES = 2 * _GIB
_NO_DISK_BYTES = _GIB // 4

_ASK_JAX = """
import collections, jax, json
kinds = collections.Counter(device.device_kind for device in jax.devices())
platform = jax.devices()[0].platform
print(json.dumps([jax.__version__, platform, kinds]))
"""


def check_cpu_flags(cpuinfo: str) -> result.CheckResult:
  """Checks the instruction sets that the TensorFlow 2.14 wheel uses.

  Args:
    cpuinfo: Content of `/proc/cpuinfo`.
  """
  match = re.search(r'^flags\s*:(.*)$', cpuinfo, re.MULTILINE)
  flags = set(match[1].split()) if match else set()
  missing = [flag for flag in ('avx', 'avx2', 'fma') if flag not in flags]
  found = 'has avx, avx2 and fma' if not missing else f'lacks {missing}'
  if 'avx' in missing:
    return result.CheckResult(
      'processor',
      'fail',
      found,
      'TensorFlow ends with SIGILL (illegal instruction) without AVX. Use '
      "another machine, or set this virtual machine's CPU type to `host`.",
    )
  if missing:
    return result.CheckResult(
      'processor',
      'warn',
      found,
      "Training is slower. Set a virtual machine's CPU type to `host`.",
    )
  return result.CheckResult('processor', 'ok', found)


def check_cores(num_cores: int) -> result.CheckResult:
  """Checks the number of CPU cores available to this process."""
  if num_cores < 2:
    return result.CheckResult(
      'cores',
      'warn',
      f'{num_cores}',
      'Training is slow on one core; the demo is meant for two.',
    )
  return result.CheckResult('cores', 'ok', f'{num_cores}')


def check_memory(
  meminfo: str, limit_bytes: int | None = None
) -> result.CheckResult:
  """Checks the free memory.

  Args:
    meminfo: Content of `/proc/meminfo`.
    limit_bytes: Memory left within the container's limit, if there is one.
  """
  match = re.search(r'^MemAvailable:\s*(\d+) kB', meminfo, re.MULTILINE)
  if match is None:
    return result.CheckResult('memory', 'warn', 'cannot be determined')
  available = int(match[1]) * 1024
  if limit_bytes is not None:
    available = min(available, limit_bytes)
  found = f'{available / _GIB:.1f} GiB available'
  if available < _LOW_MEMORY_BYTES:
    return result.CheckResult(
      'memory',
      'warn',
      found,
      f'Give it {_LOW_MEMORY_BYTES / _GIB:.0f} GiB: close programs, or raise '
      "the container's limit. Otherwise the kernel may kill a run.",
    )
  return result.CheckResult('memory', 'ok', found)


def container_memory_bytes(
  group: pathlib.Path = pathlib.Path('/sys/fs/cgroup'),
) -> int | None:
  """Returns the memory left within the container's limit, or None.

  Files in the page cache that are not in use count as left: the kernel drops
  them for programs.

  Args:
    group: Mount point of the control group (version 2).
  """
  try:
    limit = (group / 'memory.max').read_text().strip()
    used = int((group / 'memory.current').read_text())
    stat = (group / 'memory.stat').read_text()
  except OSError:
    return None
  cache = re.search(r'^inactive_file (\d+)$', stat, re.MULTILINE)
  if limit == 'max':
    return None
  return max(int(limit) - used + (int(cache[1]) if cache else 0), 0)


def check_disk(name: str, folder: pathlib.Path) -> result.CheckResult:
  """Checks that a folder is writable, and its free disk space.

  Args:
    name: Purpose of the folder.
    folder: Folder; need not exist yet.
  """
  existing = folder.absolute()
  # `Path.exists` raises below a folder that may not be entered.
  while not os.path.exists(existing):
    existing = existing.parent
  if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
    return result.CheckResult(
      name,
      'fail',
      f'{existing} cannot be written',
      'Choose another folder (`--workdir`, or TMPDIR for temporary files), or '
      'change its permissions.',
    )
  free = shutil.disk_usage(existing).free
  found = f'{free / _GIB:.1f} GiB free at {existing}'
  if free < _LOW_DISK_BYTES:
    return result.CheckResult(
      name,
      'fail' if free < _NO_DISK_BYTES else 'warn',
      found,
      f'Free {_LOW_DISK_BYTES / _GIB:.0f} GiB, or choose another folder '
      '(`--workdir`, or TMPDIR for temporary files).',
    )
  return result.CheckResult(name, 'ok', found)


def list_gpus(timeout_seconds: float) -> programs.Outcome:
  """Lists the GPUs of the NVIDIA driver."""
  return programs.run(['nvidia-smi', '--list-gpus'], timeout_seconds)


def check_gpu(
  driver: programs.Outcome, tensorflow_gpus: list[str] | None
) -> result.CheckResult:
  """Checks that TensorFlow detects the GPUs of the driver.

  Args:
    driver: Result of `list_gpus`.
    tensorflow_gpus: Devices that TensorFlow detected; None if unknown.
  """
  if driver.ending != 'ok' or not driver.output:
    if driver.ending.startswith('cannot be run'):
      return result.CheckResult('gpu', 'ok', 'none; everything runs without')
    return result.CheckResult(
      'gpu',
      'warn',
      f'nvidia-smi: {driver.ending}\n{driver.last_words}'.strip(),
      'The NVIDIA driver does not work; everything runs without a GPU.',
    )
  found = re.sub(r' \(UUID: [^)]*\)', '', driver.output)
  if tensorflow_gpus is None:
    return result.CheckResult(
      'gpu',
      'warn',
      f'{found}\nwhether TensorFlow sees them is unknown: it did not start',
      'See the check of tensorflow.',
    )
  if not tensorflow_gpus:
    return result.CheckResult(
      'gpu',
      'warn',
      f'{found}\nTensorFlow sees none of them',
      'Install the CUDA libraries: `make env-cuda`.',
    )
  return result.CheckResult(
    'gpu',
    'ok',
    f'{found}\nTensorFlow sees {len(tensorflow_gpus)}. The vectorized runtime '
    'uses it (`--config.runtime.name=vectorized`);\nthe worker of stock TFF '
    '0.87 is a CPU build and cannot.',
  )


def ask_accelerators(
  python: pathlib.Path, timeout_seconds: float
) -> programs.Outcome:
  """Asks jax for its devices, in the environment of the runtime `pjrt`.

  Args:
    python: Python of that environment.
    timeout_seconds: Time limit.
  """
  return programs.run([str(python), '-Es', '-c', _ASK_JAX], timeout_seconds)


def check_accelerators(
  driver: programs.Outcome, answer: programs.Outcome
) -> result.CheckResult:
  """Checks which devices the worker of the runtime `pjrt` would see.

  Args:
    driver: Result of `list_gpus`.
    answer: Result of `ask_accelerators`.
  """
  has_gpu = driver.ending == 'ok' and bool(driver.output)
  for_gpu = (
    '`make env-accelerator DEVICE=cuda13`, or cuda12 for an older driver.'
  )
  if answer.ending.startswith('cannot be run'):
    return result.CheckResult(
      'accelerator',
      'warn' if has_gpu else 'ok',
      'no environment for the runtime pjrt',
      for_gpu if has_gpu else '',
    )
  if answer.ending != 'ok':
    return result.CheckResult(
      'accelerator',
      'warn',
      f'jax: {answer.ending}\n{answer.last_words}'.strip(),
      'Only the runtime pjrt needs it. Make it again: '
      '`rm -r .venv-accelerator`, then `make env-accelerator` with DEVICE= '
      'cpu, cuda12, cuda13 or tpu.',
    )
  version, platform, kinds = json.loads(answer.output.splitlines()[-1])
  devices = ', '.join(f'{count} {kind}' for kind, count in kinds.items())
  found = f'jax {version} of the runtime pjrt sees {devices}'
  if has_gpu and platform == 'cpu':
    return result.CheckResult(
      'accelerator', 'warn', f'{found}, and no GPU', for_gpu
    )
  return result.CheckResult('accelerator', 'ok', found)
