"""Files of TensorFlow Serving, parsed as its messages."""

import csv
import shlex

import pytest
from google.protobuf import (
  descriptor_pb2,
  descriptor_pool,
  message_factory,
  text_format,
)
from tensorflow_serving.config import model_server_config_pb2

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import labels
from tff_algos.serving import server_config, tf_serving_config

_Field = descriptor_pb2.FieldDescriptorProto
CONFIG = server_config.ServerConfig()


@pytest.fixture(name='folder')
def make_folder(tmp_path):
  for name in (
    'cluster_models',
    'personalized_models',
    'client_a b"c',
    'foreign',
  ):
    (tmp_path / 'ex port' / name / '3').mkdir(parents=True)
  (tmp_path / 'ex port' / 'empty').mkdir()
  return tmp_path / 'ex port'


def message(name, **fields):
  """A message as TensorFlow Serving declares it, which its package lacks."""
  file = descriptor_pb2.FileDescriptorProto(name=f'{name}.proto', package='t')
  declared = file.message_type.add(name=name)
  for number, (field, kind) in enumerate(fields.items(), start=1):
    declared.field.add(
      name=field, number=number, type=kind, label=_Field.LABEL_OPTIONAL
    )
  pool = descriptor_pool.DescriptorPool()
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


def test_all_models_are_served(folder, tmp_path):
  out = tmp_path / 'out'
  text = tf_serving_config.write(folder, out, CONFIG)
  names = ['client_a b"c', 'cluster_models', 'foreign', 'personalized_models']
  assert models_of(out / 'models.config') == {
    name: (f'/export/{name}', 'tensorflow') for name in names
  }
  assert shlex.split(text.replace('\\\n', '')) == [
    *('docker', 'run', '--rm'),
    *('-p', '127.0.0.1:8500:8500', '-p', '127.0.0.1:8501:8501'),
    *('--mount', f'type=bind,source={folder},target=/export,readonly'),
    *('--mount', f'type=bind,source={out},target=/config,readonly'),
    'tensorflow/serving:2.14.1',
    '--model_config_file=/config/models.config',
    '--monitoring_config_file=/config/monitoring.config',
    '--allow_version_labels_for_unavailable_models=true',
    '--model_config_file_poll_wait_seconds=10',
  ]


def test_labels(folder, tmp_path):
  for version in (4, 5):
    (folder / 'cluster_models' / str(version)).mkdir()
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


def test_monitoring_is_valid(folder, tmp_path):
  tf_serving_config.write(folder, tmp_path, CONFIG)
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


def test_a_folder_that_may_not_be_read_hides_no_model(
  folder, tmp_path, monkeypatch
):
  """Such as lost+found of a volume, beside which `binaries.serve` serves."""
  (folder / 'lost+found').mkdir()
  exportable.hide_versions(monkeypatch, 'lost+found')
  tf_serving_config.write(folder, tmp_path / 'out', CONFIG)
  assert len(models_of(tmp_path / 'out' / 'models.config')) == 4


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


def test_other_names_are_refused(folder, tmp_path):
  named = CONFIG._replace(host='myhost', is_open=True)
  text = "^host 'myhost' is a name, and Docker .* 0.0.0.0 for all"
  with pytest.raises(errors.UserError, match=text):
    tf_serving_config.write(folder, tmp_path / 'out', named)
  assert not (tmp_path / 'out').exists()


def test_folders_with_separators(folder, tmp_path):
  """Docker reads the value of --mount as a row of CSV."""
  moved = folder.rename(tmp_path / 'a:b,"c"')
  text = tf_serving_config.write(moved, tmp_path / 'out', CONFIG)
  words = shlex.split(text.replace('\\\n', ''))
  (row,) = csv.reader([words[words.index('--mount') + 1]])
  assert row == [
    *('type=bind', f'source={moved}', 'target=/export', 'readonly')
  ]
