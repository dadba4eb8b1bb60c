"""Programs whose workdir is in an object store, against a real S3 server."""

import contextlib
import filecmp
import json
import os
import signal
import time
import urllib.request

import pytest
from absl import flags

from binaries import mirrored_flags
from tests.testing import patience, s3_server
from tff_algos.core import cache_folder, errors
from tff_algos.stores import mirror as mirror_lib
from tff_algos.stores import objects, pointer

_CONFIG = '--config=configs/fed_soft/synthetic.py:smoke'
_ROUNDS = (
  '--config.training.num_rounds=4',
  '--config.training.checkpoint_interval=1',
  '--config.runtime.name=debug',
)
# Times and places of a run.
_OWN = {
  *('tensorboard', 'records.json', 'checkpoint.json', 'metrics.csv'),
  'index.html',
}


_RAW = 'config.dataset.source.options.path'


@pytest.fixture
def values(monkeypatch, tmp_path):
  """Flags of a program that has a workdir and a file."""
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  found = flags.FlagValues()
  for name in ('export_dir', 'workdir', 'other', _RAW):
    flags.DEFINE_string(name, None, '', flag_values=found)
  found(['program'])
  monkeypatch.setattr(flags, 'FLAGS', found)
  return found


def test_local_folders_and_values_of_a_config_stay_as_they_are(values):
  values['workdir'].value = 'runs/digits'
  values['other'].value = 'http://127.0.0.1:8501'
  values[_RAW].value = 's3://bucket/raw/*.csv'
  with mirrored_flags.mirrored():
    mirrored_flags.publish()
    assert values['workdir'].value == 'runs/digits'
    assert values[_RAW].value == 's3://bucket/raw/*.csv'


def test_an_address_becomes_a_folder_that_is_published(values):
  address = 'memory://bucket/flags'
  values['workdir'].value = address
  with mirrored_flags.mirrored():
    folder = values['workdir'].value
    with open(os.path.join(folder, 'file'), 'w') as file:
      file.write('1')
    before = pointer.read(objects.Objects(address))[0].snapshot
    mirrored_flags.publish()
    assert pointer.read(objects.Objects(address))[0].snapshot != before
    os.unlink(os.path.join(folder, 'file'))
  mirrored_flags.publish()
  assert mirror_lib.Mirror(address).fetch() and not os.listdir(folder)


def test_a_folder_of_a_published_one_is_worked_on_there(values):
  address = 'memory://bucket/nights/production'
  production = mirror_lib.Mirror(address)
  with production.writing():
    (production.folder / 'export').mkdir()
    (production.folder / 'export/labels.json').write_text('before')
  values['workdir'].value = address
  values['export_dir'].value = f'{address}/export'
  with mirrored_flags.mirrored():
    folder = values['export_dir'].value
    assert folder == os.path.join(values['workdir'].value, 'export')
    with open(os.path.join(folder, 'labels.json'), 'r+') as file:
      assert file.read() == 'before'
      file.write(', after')
  assert _head(f'{address}/export').snapshot is None
  part = mirror_lib.Mirror(address, 'export')
  assert part.fetch()
  assert (part.folder / 'labels.json').read_text() == 'before, after'


def test_an_address_that_cannot_be_used_is_refused(values, monkeypatch):
  values['other'].value = 's3://bucket/run'
  with pytest.raises(errors.ConfigError, match='--other=s3://bucket/run: this'):
    with mirrored_flags.mirrored():
      pass
  values['other'].value = ['runs/a', 's3://bucket/b']
  with pytest.raises(errors.ConfigError, match='--other=s3://bucket/b: this'):
    with mirrored_flags.mirrored():
      pass
  values['other'].value, values['workdir'].value = None, 'hdfs://lake/run'
  with pytest.raises(errors.ConfigError, match="unknown scheme 'hdfs'"):
    with mirrored_flags.mirrored():
      pass
  values['workdir'].value = 's3://bucket/run'
  monkeypatch.setenv('TF_CONFIG', '{}')
  with pytest.raises(errors.ConfigError, match=r'several processes \(TF_CONF'):
    with mirrored_flags.mirrored():
      pass


def _files(folder):
  return {
    path.relative_to(folder).as_posix()
    for path in folder.rglob('*')
    if path.is_file() and not _OWN & {*path.parts}
  }


def _head(address):
  return pointer.read(objects.Objects(address))[0]


@pytest.mark.verify
def test_training_reads_a_published_dataset_by_range(
  launcher, s3, tmp_path, monkeypatch
):
  """The workdir is local: nothing but parts of the dataset is fetched."""
  address = f's3://{s3_server.BUCKET}/shared'
  machine = {**os.environ, cache_folder.VARIABLE: str(tmp_path / 'cache')}
  machine.pop('TMPDIR', None)
  local, other = tmp_path / 'local', tmp_path / 'other'

  def run(name, folder, *more):
    program = launcher.run(
      f'binaries.{name}', _CONFIG, f'--workdir={folder}', *more, **machine
    )
    assert program.returncode == 0, program.stderr

  run('preprocess', local)
  run('preprocess', address)
  failed = [0]

  def fault(method, path):
    failed[0] += 1
    return {1: 'status', 3: 'torn', 4: 'lost'}.get(failed[0] % 9)

  monkeypatch.setattr(s3, 'fault', fault)
  s3.requests.clear()
  for folder, more in (
    (local, ()),
    (other, (f'--dataset={address}',)),
  ):
    run('train', folder, *_ROUNDS, *more)
    run('evaluate', folder, *_ROUNDS)
    run('export', folder, '--nogate', *_ROUNDS)
  methods = {method for method, *_ in s3.requests}
  assert methods == {'GET', 'HEAD'} and failed[0] > 20
  names = {name for name in _files(local) if not name.startswith('dataset/')}
  assert names == _files(other) - {'dataset'} and len(names) > 20
  _, different, missing = filecmp.cmpfiles(local, other, names, shallow=False)
  assert (different, missing) == ([], [])


@pytest.mark.verify
def test_build_train_die_elsewhere_go_on_export_and_serve(
  launcher, s3, tmp_path, monkeypatch
):
  address = f's3://{s3_server.BUCKET}/run'
  local = tmp_path / 'run'
  machines = [
    {**os.environ, cache_folder.VARIABLE: str(tmp_path / name)}
    for name in ('a', 'b', 'c')
  ]
  for machine in machines:
    machine.pop('TMPDIR', None)

  def run(name, *more, machine):
    program = launcher.run(
      f'binaries.{name}', _CONFIG, f'--workdir={address}', *more, **machine
    )
    assert program.returncode == 0, program.stderr

  failed = [0]

  def fault(method, path):
    failed[0] += 1
    return {5: 'status', 6: 'torn', 11: 'lost'}.get(failed[0] % 17)

  monkeypatch.setattr(s3, 'fault', fault)
  for name in ('preprocess', 'train', 'evaluate'):
    more = _ROUNDS if name != 'preprocess' else ()
    program = launcher.run(
      f'binaries.{name}', _CONFIG, f'--workdir={local}', *more
    )
    assert program.returncode == 0, program.stderr
  run('preprocess', machine=machines[0])
  before = _head(address).snapshot
  killed = launcher.start(
    'binaries.train',
    *(_CONFIG, f'--workdir={address}', *_ROUNDS),
    **machines[0],
  )
  patience.until(lambda: _head(address).snapshot != before, 240, [killed])
  killed.send_signal(signal.SIGKILL)
  assert killed.wait().returncode == -signal.SIGKILL, killed.stderr
  refused = launcher.run(
    'binaries.train',
    *(_CONFIG, f'--workdir={address}', *_ROUNDS),
    **machines[1],
  )
  assert refused.returncode == 75 and 'is in use by' in refused.stderr
  patience.until(lambda: _head(address).until <= time.time(), 240)
  run('train', *_ROUNDS, machine=machines[1])
  run('evaluate', *_ROUNDS, machine=machines[2])
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'd'))
  copy = mirror_lib.Mirror(address)
  assert copy.fetch()
  names = _files(local)
  assert names == _files(copy.folder)
  assert len(names) > 20
  _, different, missing = filecmp.cmpfiles(
    local, copy.folder, names, shallow=False
  )
  assert (different, missing) == ([], [])
  run('export', '--nogate', *_ROUNDS, machine=machines[0])
  server = launcher.start(
    'binaries.serve',
    *(f'--workdir={address}', '--rest_api_port=0', '--port=0'),
    f'--port_file={tmp_path / "ports"}',
    **machines[2],
  )
  with contextlib.ExitStack() as stack:
    stack.callback(lambda: (server.send_signal(signal.SIGTERM), server.wait()))
    patience.until(lambda: (tmp_path / 'ports').exists(), 240, [server])
    port = json.loads((tmp_path / 'ports').read_text())['rest_api_port']
    url = f'http://127.0.0.1:{port}/v1/models/cluster_models'
    run('export', '--nogate', *_ROUNDS, machine=machines[1])

    def versions():
      states = json.load(urllib.request.urlopen(url))['model_version_status']
      return {one['version'] for one in states}

    patience.until(lambda: '2' in versions(), 240, [server])
  assert failed[0] > 100
