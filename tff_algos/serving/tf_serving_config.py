"""Configuration of TensorFlow Serving for a folder of exported models.

Without its batching, which is for all models of a server or none, and would
join the examples of several clients for `pick_cluster` of `cluster_models`.
"""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import csv
import io
import ipaddress
import os
import pathlib
import shlex
from collections.abc import Mapping

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tff_algos.core import durable, errors, hosts
from tff_algos.export import labels as labels_lib
from tff_algos.export import versions
from tff_algos.serving import server_config

_IMAGE = 'tensorflow/serving:2.14.1'
_MONITORING = """\
prometheus_config {
  enable: true
  path: "/metrics"
}
"""


def write(
  folder: str | os.PathLike[str],
  out: str | os.PathLike[str],
  config: server_config.ServerConfig,
) -> str:
  """Writes the files of TensorFlow Serving; returns the command to start it.

  Args:
    folder: Folder of the models, `<model>/<version>/`.
    out: Folder for `models.config` and `monitoring.config`; made if it is
      missing.
    config: Ports on this machine, and its address.

  Raises:
    UserError: If access is to be restricted, which TensorFlow Serving cannot do
      in this way; others may ask, and nobody has said so; the host is no
      address; there are no models, the labels are damaged, or the files cannot
      be written.
  """
  _check_access(config)
  host = _address(config.host)
  folder, out = pathlib.Path(folder).absolute(), pathlib.Path(out).absolute()
  names, labels = _names(folder), labels_lib.read(folder)
  files = {
    'models.config': _models_config(folder, names, labels),
    'monitoring.config': _MONITORING,
  }
  try:
    out.mkdir(exist_ok=True)
    for name, content in files.items():
      with durable.replacing(out / name) as file:
        file.write(content)
  except OSError as error:
    raise errors.UserError(
      f'the files of TensorFlow Serving cannot be written to {out}: '
      f'{error.strerror}'
    ) from error
  return _command(folder, out, host, config)


def _check_access(config: server_config.ServerConfig) -> None:
  for name in ('token_file', 'tls_certificate', 'tls_key', 'tls_client_ca'):
    if getattr(config, name):
      raise errors.UserError(
        f'--print_tf_serving_config takes no --{name}: TensorFlow Serving has '
        'no tokens, and no TLS at its REST API. Let it listen on this machine '
        'alone, behind a proxy that has both.'
      )
  if not (hosts.is_loopback(config.host) or config.is_open):
    raise errors.UserError(
      f'host {config.host!r} may be reached from other machines, and everybody '
      'could ask. Give --is_open if that is intended.'
    )


def _address(host: str) -> str:
  """Returns a host as it stands before `:port`; Docker takes no names."""
  if host == 'localhost':
    return '127.0.0.1'
  try:
    ipaddress.ip_address(host)
  except ValueError:
    raise errors.UserError(
      f'host {host!r} is a name, and Docker listens on addresses alone. Give '
      'an address of this machine, or 0.0.0.0 for all of them, as --host.'
    ) from None
  return hosts.in_address(host)


def _names(folder: pathlib.Path) -> list[str]:
  """Returns the names of the models."""
  try:
    names = versions.model_names(folder)
  except OSError as error:
    raise errors.UserError(
      f'model folder {folder} cannot be read: {error.strerror}'
    ) from error
  if not names:
    raise errors.UserError(
      f'{folder} has no <model>/<version> folders. Write models there with '
      'binaries.export first.'
    )
  return names


def _models_config(
  folder: pathlib.Path,
  names: list[str],
  labels: Mapping[str, labels_lib.Labels],
) -> str:
  """Returns the list of models; where there are labels, of their versions."""
  config = model_server_config_pb2.ModelServerConfig()
  for name in names:
    entry = config.model_config_list.config.add(
      name=name, base_path=f'/export/{name}', model_platform='tensorflow'
    )
    if name in labels:
      named = labels[name].versions
      newest = max(versions.version_folders(folder / name))
      served = sorted({newest, *named.values()})
      entry.model_version_policy.specific.versions.extend(served)
      for label, version in sorted(named.items()):
        entry.version_labels[label] = version
  return text_format.MessageToString(config)


def _command(
  folder: pathlib.Path,
  out: pathlib.Path,
  host: str,
  config: server_config.ServerConfig,
) -> str:
  words = [
    'docker run --rm',
    f'-p {host}:{config.port}:8500 -p {host}:{config.rest_api_port}:8501',
    _mount(folder, '/export'),
    _mount(out, '/config'),
    _IMAGE,
    '--model_config_file=/config/models.config',
    '--monitoring_config_file=/config/monitoring.config',
    # The models may change, and have labels before the versions are loaded.
    '--allow_version_labels_for_unavailable_models=true',
    '--model_config_file_poll_wait_seconds=10',
  ]
  return ' \\\n  '.join(words)


def _mount(source: pathlib.Path, target: str) -> str:
  """Returns Docker's option for a folder, whose fields are a row of CSV.

  The value of -v could have no colon in a path.
  """
  row = io.StringIO()
  fields = ['type=bind', f'source={source}', f'target={target}', 'readonly']
  csv.writer(row, lineterminator='').writerow(fields)
  return f'--mount {shlex.quote(row.getvalue())}'
