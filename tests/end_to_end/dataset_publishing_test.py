"""A published version stays whole: full disks, readers, several runs."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from pipelines import build_dataset
from pipelines.publishing import staging as staging_lib
from pipelines.publishing import versions
from tests.testing import mounts, programs, raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib


@pytest.mark.slow
@pytest.mark.parametrize('step', [3, pytest.param(1, marks=pytest.mark.verify)])
def test_disk_that_fills_up_damages_nothing(tmp_path, monkeypatch, step):
  build_dataset.build(raw_data.digits_config(), tmp_path)
  before = raw_data.file_bytes(tmp_path)
  original = staging_lib.Staging.atomic_path
  left = 0

  def fill_up(self, path):
    nonlocal left
    left -= 1
    if left < 0:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    return original(self, path)

  monkeypatch.setattr(staging_lib.Staging, 'atomic_path', fill_up)
  # Two files of the survey, a plan, pieces, 2 shards of 3 files and a note
  # each, 2 held-out files with a note: then CURRENT.
  num_files = 2 + 1 + 1 + 2 * 4 + 2 * 2 + 1
  for allowed in [*range(0, num_files - 1, step), num_files - 1]:
    left = allowed
    with pytest.raises(errors.InfrastructureError, match='No space left'):
      build_dataset.build(raw_data.digits_config(seed=4), tmp_path)
    assert {
      name: content
      for name, content in raw_data.file_bytes(tmp_path).items()
      if name in before
    } == before
    assert sorted(os.listdir(tmp_path)) == ['CURRENT', 'versions']
    if allowed < num_files - 1:
      assert len(os.listdir(tmp_path / 'versions')) == 1
  # The last one failed when all was in its place; what is there is used.
  left = 1
  assert build_dataset.build(raw_data.digits_config(seed=4), tmp_path).reused


# Publishes one version, and lets the program meet the full disk on a second.
_ON_A_SMALL_DISK = textwrap.dedent("""
  import json, os, pathlib, runpy, sys
  from pipelines import build_dataset
  from tests.testing import raw_data
  workdir = pathlib.Path(sys.argv[1])
  build_dataset.build(raw_data.digits_config(), workdir / 'dataset')
  before = raw_data.file_bytes(workdir)
  room = os.statvfs(workdir)
  filler = workdir / 'filler'
  filler.write_bytes(bytes(room.f_bavail * room.f_frsize - 700_000))
  sys.argv = ['preprocess', '--config=configs/fed_soft/digits.py:smoke',
    f'--workdir={workdir}']
  try:
    runpy.run_module('binaries.preprocess', run_name='__main__')
  except SystemExit as end:
    code = end.code
  filler.unlink()
  same = raw_data.file_bytes(workdir) == before
  print(json.dumps([code, same, os.listdir(workdir / 'dataset')]))
""")


@pytest.mark.verify
def test_real_disk_that_fills_up(tmp_path):
  mounts.need('-rm')
  mount = 'mount -t tmpfs -o size=8m tmpfs "$1" && exec "$0" -c "$2" "$1"'
  program = subprocess.run(
    [
      *('unshare', '-rm', 'sh', '-c', mount),
      *(sys.executable, str(tmp_path), _ON_A_SMALL_DISK),
    ],
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  failed, ending = map(json.loads, program.stdout.splitlines())
  assert (failed['status'], failed['reason']) == ('failed', 'infrastructure')
  assert 'No space left on device. Make room' in failed['message']
  code, same, names = ending
  assert (code, same) == (75, True)
  assert sorted(names) == ['CURRENT', 'versions']
  assert 'Traceback' not in program.stderr


@pytest.mark.verify
def test_readers_never_see_a_version_go(tmp_path):
  """While versions come, and old ones are removed at once."""
  publication = versions.Publication(keep_versions=1)

  def build(seed):
    build_dataset.build(
      raw_data.digits_config(seed=seed), tmp_path, publication=publication
    )

  build(0)
  seen, trouble, done = set(), [], threading.Event()

  def read():
    try:
      while not done.is_set():
        with dataset_lib.FederatedDataset.open(tmp_path) as dataset:
          seen.add(dataset.version)
          for client_id in dataset.client_ids:
            dataset.examples(client_id, 'train')
    except Exception as error:
      trouble.append(error)

  readers = [threading.Thread(target=read) for _ in range(2)]
  for reader in readers:
    reader.start()
  try:
    for seed in range(1, 7):
      build(seed)
  finally:
    done.set()
    for reader in readers:
      reader.join()
  assert not trouble
  assert len(seen) > 1
  build(7)
  assert len(os.listdir(tmp_path / 'versions')) == 1


def test_two_runs_at_once(tmp_path):
  """One publishes; the other is refused, or comes later and has to do less."""
  endings = []

  def build():
    try:
      result = build_dataset.build(
        raw_data.digits_config(), tmp_path / 'shared'
      )
      endings.append('unchanged' if result.reused else 'built')
    except errors.WorkdirBusyError:
      endings.append('busy')

  runs = [threading.Thread(target=build) for _ in range(4)]
  for run in runs:
    run.start()
  for run in runs:
    run.join()
  assert endings.count('built') == 1
  assert len(endings) == 4
  build_dataset.build(raw_data.digits_config(), tmp_path / 'alone')
  alone = raw_data.file_bytes(tmp_path / 'alone')
  assert raw_data.file_bytes(tmp_path / 'shared') == alone
