"""Files of TensorFlow Serving, parsed as its messages."""

import json
import shlex
import shutil

import pytest
from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message_factory,
  text_format,
  wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from tff_algos.core import errors
from tff_algos.export import labels
from tff_algos.serving import server_config, tf_serving_config

_Field = descriptor_pb2.FieldDescriptorProto
CONFIG = server_config.ServerConfig()


@pytest.fixture(name='folder')
def make_folder(tmp_path):
  for name, kind in (
    ('cluster_models', 'cluster_models'),
    ('personalized_models', 'personalized_models'),
    ('client_a b"c', 'client_model'),
    ('foreign', None),
  ):
    extra = tmp_path / 'ex port' / name / '3' / 'assets.extra'
    extra.mkdir(parents=True)
    if kind is not None:
      content = {'bundle_format': 1, 'files': {}, 'kind': kind}
      (extra / 'bundle.json').write_text(json.dumps(content))
  (tmp_path / 'ex port' / 'empty').mkdir()
  return tmp_path / 'ex port'


def message(name, wrapped=(), **fields):
  """A message as TensorFlow Serving declares it, which its package lacks."""
  file = descriptor_pb2.FileDescriptorProto(
    name=f'{name}.proto', package='t', dependency=[wrappers_pb2.DESCRIPTOR.name]
  )
  declared = file.message_type.add(name=name)
  for number, field in enumerate(wrapped, start=1):
    declared.field.add(
      name=field,
      number=number,
      type=_Field.TYPE_MESSAGE,
      label=_Field.LABEL_OPTIONAL,
      type_name='.google.protobuf.Int64Value',
    )
  for number, (field, kind) in enumerate(fields.items(), start=1):
    declared.field.add(
      name=field, number=number, type=kind, label=_Field.LABEL_OPTIONAL
    )
  pool = descriptor_pool.DescriptorPool()
  pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
  pool.Add(file)
  return message_factory.GetMessageClass(
    pool.FindMessageTypeByName(f't.{name}')
  )()


def models_of(path):
  config = text_format.Parse(
    path.read_text(), model_server_config_pb2.ModelServerConfig()
  )
  return {
    one.name: (one.base_path, one.model_platform)
    for one in config.model_config_list.config
  }


def test_all_models_are_served_without_batching(folder, tmp_path):
  out = tmp_path / 'out'
  text = tf_serving_config.write(folder, out, CONFIG)
  names = ['client_a b"c', 'cluster_models', 'foreign', 'personalized_models']
  assert models_of(out / 'models.config') == {
    name: (f'/export/{name}', 'tensorflow') for name in names
  }
  comment, command = text.splitlines()[0], text.split('# Beside it')[0]
  assert comment == '# All models.'
  assert shlex.split(command.replace('\\\n', ''), comments=True) == [
    *('docker', 'run', '--rm'),
    *('-p', '127.0.0.1:8500:8500', '-p', '127.0.0.1:8501:8501'),
    *('-v', f'{folder}:/export:ro', '-v', f'{out}:/config:ro'),
    'tensorflow/serving:2.14.1',
    '--model_config_file=/config/models.config',
    '--monitoring_config_file=/config/monitoring.config',
    '--allow_version_labels_for_unavailable_models=true',
    '--model_config_file_poll_wait_seconds=10',
  ]


def test_labels(folder, tmp_path):
  for version in (4, 5):
    extra = folder / 'cluster_models' / str(version) / 'assets.extra'
    shutil.copytree(folder / 'cluster_models' / '3' / 'assets.extra', extra)
  named = labels.Labels({'stable': 3, 'canary': 4}, 0.1)
  labels.assign(folder, ['cluster_models'], named)
  out = tmp_path / 'out'
  tf_serving_config.write(folder, out, CONFIG)
  config = text_format.Parse(
    (out / 'models.config').read_text(),
    model_server_config_pb2.ModelServerConfig(),
  )
  entries = {one.name: one for one in config.model_config_list.config}
  labelled = entries.pop('cluster_models')
  assert dict(labelled.version_labels) == {'stable': 3, 'canary': 4}
  assert labelled.model_version_policy.specific.versions == [3, 4, 5]
  assert not any(one.version_labels for one in entries.values())
  assert not any(
    one.HasField('model_version_policy') for one in entries.values()
  )
  (folder / 'labels.json').write_text('{')
  with pytest.raises(errors.UserError, match=r'labels\.json cannot be used'):
    tf_serving_config.write(folder, out, CONFIG)


def test_no_batch_has_examples_of_several_clients(folder, tmp_path):
  out = tmp_path / 'out'
  text = tf_serving_config.write(folder, out, CONFIG)
  assert set(models_of(out / 'batched_models.config')) == {
    'client_a b"c',
    'personalized_models',
  }
  (command,) = [one for one in text.split('# ') if '--enable_batching' in one]
  assert '--model_config_file=/config/batched_models.config' in command
  assert '-p 127.0.0.1:8510:8500 -p 127.0.0.1:8511:8501' in command


def test_without_such_models_there_is_no_batching(folder, tmp_path):
  for name in ('client_a b"c', 'personalized_models'):
    (folder / name).rename(tmp_path / name)
  out = tmp_path / 'out'
  assert 'batching' not in tf_serving_config.write(folder, out, CONFIG)
  assert {path.name for path in out.iterdir()} == {
    'models.config',
    'monitoring.config',
  }


def test_batching_and_monitoring_are_valid(folder, tmp_path):
  tf_serving_config.write(folder, tmp_path, CONFIG)
  batching = text_format.Parse(
    (tmp_path / 'batching.config').read_text(),
    message(
      'BatchingParameters',
      wrapped=(
        *('max_batch_size', 'batch_timeout_micros', 'max_enqueued_batches'),
        'num_batch_threads',
      ),
    ),
  )
  assert batching.max_batch_size.value == 128
  assert batching.num_batch_threads.value >= 1
  lines = (tmp_path / 'monitoring.config').read_text().splitlines()
  assert (lines[0], lines[-1]) == ('prometheus_config {', '}')
  prometheus = text_format.Parse(
    '\n'.join(lines[1:-1]),
    message(
      'PrometheusConfig', enable=_Field.TYPE_BOOL, path=_Field.TYPE_STRING
    ),
  )
  assert (prometheus.enable, prometheus.path) == (True, '/metrics')


def test_nothing_to_serve(tmp_path):
  with pytest.raises(errors.UserError, match='cannot be read'):
    tf_serving_config.write(tmp_path / 'none', tmp_path / 'out', CONFIG)
  with pytest.raises(errors.UserError, match='no <model>/<version> folders'):
    tf_serving_config.write(tmp_path, tmp_path / 'out', CONFIG)
  assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(folder, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.UserError, match='cannot be written to .*file'):
    tf_serving_config.write(folder, tmp_path / 'file', CONFIG)


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'token_file': 'tokens.json'}, 'takes no --token_file'),
    ({'tls_client_ca': 'ca.pem', 'is_open': True}, 'takes no --tls_client_ca'),
    ({'host': '0.0.0.0'}, 'Give --is_open'),
  ],
)
def test_access_is_not_opened_in_silence(folder, tmp_path, changes, words):
  out = tmp_path / 'out'
  with pytest.raises(errors.UserError, match=words):
    tf_serving_config.write(folder, out, CONFIG._replace(**changes))
  assert not out.exists()
  opened = CONFIG._replace(host='0.0.0.0', is_open=True)
  assert '0.0.0.0:8500' in tf_serving_config.write(folder, out, opened)


def test_the_name_of_this_machine_is_its_address(folder, tmp_path):
  """Docker takes no names of hosts."""
  named = CONFIG._replace(host='localhost')
  text = tf_serving_config.write(folder, tmp_path / 'out', named)
  assert '-p 127.0.0.1:8500:8500' in text and 'localhost' not in text
