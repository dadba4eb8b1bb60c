"""Tests of the checks of the hardware, on spelled-out machines."""

import json
import os
import re

import pytest

from tff_algos.diagnostics import hardware, programs

_GIB_IN_KB = 2**20


@pytest.mark.parametrize(
  ('flags', 'status', 'words'),
  [
    ('sse4_2 avx avx2 fma', 'ok', ''),
    ('sse4_2 avx avx512f', 'warn', "lacks ['avx2', 'fma']"),
    ('sse4_2', 'fail', "lacks ['avx', 'avx2', 'fma']"),
  ],
)
def test_cpu_flags(flags, status, words):
  cpuinfo = f'processor\t: 0\nflags\t\t: fpu {flags}\nbugs\t\t: none\n'
  found = hardware.check_cpu_flags(cpuinfo)
  assert found.status == status
  assert words in found.found
  assert bool(found.mend) == (status != 'ok')


def test_cpu_without_flags_fails():
  assert hardware.check_cpu_flags('Features : neon\n').status == 'fail'


def test_cores():
  assert hardware.check_cores(1).status == 'warn'
  assert hardware.check_cores(2).status == 'ok'


def test_memory():
  meminfo = f'MemTotal: 99 kB\nMemAvailable:  {8 * _GIB_IN_KB} kB\n'
  assert hardware.check_memory(meminfo).found == '8.0 GiB available'
  assert hardware.check_memory(meminfo).status == 'ok'
  limited = hardware.check_memory(meminfo, limit_bytes=2**30)
  assert (limited.status, limited.found) == ('warn', '1.0 GiB available')
  assert hardware.check_memory('').status == 'warn'


def test_memory_of_a_container(tmp_path):
  assert hardware.container_memory_bytes(tmp_path) is None
  (tmp_path / 'memory.current').write_text('600\n')
  (tmp_path / 'memory.stat').write_text('file 300\n')
  (tmp_path / 'memory.max').write_text('max\n')
  assert hardware.container_memory_bytes(tmp_path) is None
  (tmp_path / 'memory.max').write_text('1000\n')
  assert hardware.container_memory_bytes(tmp_path) == 400
  # Of the page cache, what is not in use is as good as free.
  (tmp_path / 'memory.stat').write_text('file 300\ninactive_file 250\nx 1\n')
  assert hardware.container_memory_bytes(tmp_path) == 650


def test_disk_of_a_folder_that_does_not_exist_yet(tmp_path):
  found = hardware.check_disk('workdir', tmp_path / 'a' / 'b')
  assert found.name == 'workdir'
  assert f'free at {tmp_path}' in found.found
  assert not (tmp_path / 'a').exists()


@pytest.mark.parametrize(
  ('free_gib', 'status'), [(0.1, 'fail'), (1, 'warn'), (5, 'ok')]
)
def test_disk_space(tmp_path, monkeypatch, free_gib, status):
  class Usage:
    free = int(free_gib * 2**30)

  monkeypatch.setattr(hardware.shutil, 'disk_usage', lambda _: Usage)
  assert hardware.check_disk('workdir', tmp_path).status == status


def test_folder_that_cannot_be_written(tmp_path):
  file = tmp_path / 'file'
  file.touch()
  assert 'cannot be written' in hardware.check_disk('workdir', file).found
  if os.geteuid() == 0:
    pytest.skip('root may write anywhere')
  tmp_path.chmod(0o500)
  assert hardware.check_disk('workdir', tmp_path).status == 'fail'


_TWO_GPUS = programs.Outcome(
  'ok', 'GPU 0: NVIDIA A (UUID: GPU-1-2)\nGPU 1: NVIDIA B (UUID: GPU-3)', ''
)


def test_no_gpu_is_fine(monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  found = hardware.check_gpu(hardware.list_gpus(5.0), [])
  assert (found.status, found.found) == ('ok', 'none; everything runs without')


def test_gpu_that_tensorflow_sees():
  found = hardware.check_gpu(_TWO_GPUS, ['/gpu:0', '/gpu:1'])
  assert found.status == 'ok'
  assert 'GPU 0: NVIDIA A\nGPU 1: NVIDIA B\n' in found.found
  assert 'vectorized' in found.found and 'cannot' in found.found


@pytest.mark.parametrize(
  ('gpus', 'mend'), [([], 'env-cuda'), (None, 'the check of tensorflow')]
)
def test_gpu_that_tensorflow_does_not_see(gpus, mend):
  """Without its list nothing is known of CUDA's libraries."""
  found = hardware.check_gpu(_TWO_GPUS, gpus)
  assert found.status == 'warn'
  assert mend in found.mend


def test_driver_that_does_not_answer():
  hung = programs.Outcome('no end within 10 s', '', '')
  found = hardware.check_gpu(hung, None)
  assert (found.status, found.found) == (
    'warn',
    'nvidia-smi: no end within 10 s',
  )


_NO_GPU = programs.Outcome('cannot be run: No such file or directory', '', '')


def _jax(platform, **kinds):
  output = f'some words\n["0.10.2", "{platform}", {json.dumps(kinds)}]'
  return programs.Outcome('ok', output, '')


@pytest.mark.parametrize(
  ('driver', 'answer', 'status', 'found', 'mend'),
  [
    (_NO_GPU, _NO_GPU, 'ok', 'no environment', ''),
    (_TWO_GPUS, _NO_GPU, 'warn', 'no environment', 'DEVICE=cuda13'),
    (_NO_GPU, _jax('cpu', cpu=1), 'ok', 'jax 0.10.2 .* sees 1 cpu$', ''),
    (_TWO_GPUS, _jax('cpu', cpu=1), 'warn', 'no GPU', 'DEVICE=cuda13'),
    (_TWO_GPUS, _jax('gpu', H200=2), 'ok', 'sees 2 H200$', ''),
    (
      _NO_GPU,
      programs.Outcome('exit code 1', '', 'No module named jax'),
      'warn',
      'exit code 1\nNo module named jax',
      'env-accelerator',
    ),
  ],
)
def test_what_the_accelerator_worker_sees(driver, answer, status, found, mend):
  result = hardware.check_accelerators(driver, answer)
  assert result.status == status
  assert re.search(found, result.found)
  assert mend in result.mend
  assert bool(mend) == bool(result.mend)
