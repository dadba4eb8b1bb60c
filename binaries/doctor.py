"""Checks hardware, network and installed software, and suggests fixes.

  python -m binaries.doctor

Starts TFF's worker process and runs one small computation on it; takes about
half a minute, never hangs, and leaves nothing behind. The exit code is 1 if a
check fails.
"""

import functools
import json
import os
import pathlib
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping

from absl import app, flags, logging

from tff_algos.diagnostics import hardware, network, programs, result, software
from tff_algos.runtimes.pjrt import pjrt_config

_JSON = flags.DEFINE_bool('json', False, 'Print JSON instead of text.')
_WORKDIR = flags.DEFINE_string(
  'workdir', 'runs', 'Folder of the runs, whose disk is checked.'
)

_LOCK = pathlib.Path(__file__).parents[1] / 'requirements.lock'
_QUICK_SECONDS = 10.0
_IMPORT_SECONDS = 120.0
# Time of a check in addition to the programs that it runs.
_MARGIN_SECONDS = 15.0


def _read(path: str | pathlib.Path) -> str:
  return pathlib.Path(path).read_text()


def _quick_checks() -> Mapping[str, Callable[[], result.CheckResult]]:
  return {
    'python': software.check_python,
    'packages': lambda: software.check_packages(
      _read(_LOCK) if _LOCK.exists() else None, software.installed_packages()
    ),
    'glibc': lambda: software.check_glibc(' '.join(platform.libc_ver())),
    'processor': lambda: hardware.check_cpu_flags(_read('/proc/cpuinfo')),
    'cores': lambda: hardware.check_cores(len(os.sched_getaffinity(0))),
    'memory': lambda: hardware.check_memory(
      _read('/proc/meminfo'), hardware.container_memory_bytes()
    ),
    'workdir': lambda: hardware.check_disk(
      'workdir', pathlib.Path(_WORKDIR.value)
    ),
    'temp folder': lambda: hardware.check_disk(
      'temp folder', pathlib.Path(tempfile.gettempdir())
    ),
    'loopback': network.check_port,
    'proxies': lambda: network.check_proxies(os.environ),
  }


def _slow_checks() -> Mapping[str, Callable[[], result.CheckResult]]:
  ask_tensorflow = functools.cache(
    lambda: software.ask_tensorflow(_IMPORT_SECONDS)
  )
  return {
    'tensorflow': lambda: software.check_tensorflow(ask_tensorflow()),
    'gpu': lambda: hardware.check_gpu(
      hardware.list_gpus(_QUICK_SECONDS),
      software.tensorflow_gpus(ask_tensorflow()),
    ),
    'accelerator': lambda: hardware.check_accelerators(
      hardware.list_gpus(_QUICK_SECONDS),
      hardware.ask_accelerators(
        pjrt_config.PjrtConfig().python_path, _IMPORT_SECONDS
      ),
    ),
    'tff': lambda: software.check_tff(software.ask_tff(_IMPORT_SECONDS)),
  }


def _run_checks() -> list[result.CheckResult]:
  try:
    return [
      *(
        result.run_check(name, check, _QUICK_SECONDS)
        for name, check in _quick_checks().items()
      ),
      *(
        result.run_check(name, check, _IMPORT_SECONDS + _MARGIN_SECONDS)
        for name, check in _slow_checks().items()
      ),
    ]
  finally:
    programs.end_children()


def main(argv: list[str]) -> None:
  """Runs every check and prints what it found."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {argv[1:]}')
  logging.set_verbosity(logging.WARNING)
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
  try:
    results = _run_checks()
  except KeyboardInterrupt:
    sys.exit(128 + signal.SIGINT)
  if _JSON.value:
    print(json.dumps([one._asdict() for one in results], indent=2))
  else:
    print(result.to_text(results))
  sys.exit(1 if result.summary(results)['fail'] else 0)


if __name__ == '__main__':
  app.run(main)
