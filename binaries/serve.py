"""Serves exported models over TensorFlow Serving's REST and gRPC APIs.

  python -m binaries.serve --workdir=runs/digits

serves every model in <workdir>/export at http://127.0.0.1:8501 (REST) and
127.0.0.1:8500 (gRPC), and loads new versions as they are exported. Clients are
python -m binaries.predict, curl or any TensorFlow Serving client:

  curl http://127.0.0.1:8501/v1/models/cluster_models/metadata

Ctrl-C ends it. With --print_tf_serving_config it prints how TensorFlow Serving
serves the same models.
"""

import os
import pathlib

from absl import flags

from binaries import command
from tff_algos.core import errors
from tff_algos.serving import server_config
from tff_algos.stores import mirror as mirror_lib
from tff_algos.stores import objects

_DEFAULTS = server_config.ServerConfig()
# The longest wait, in seconds: sockets overflow from some years on.
_DAY = 86_400.0

_WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'Folder of a run; its models in <workdir>/export are served. '
  'May be an address of an object store, as the next flag (docs/scale.md).',
)
_MODEL_BASE_PATH = flags.DEFINE_string(
  'model_base_path',
  None,
  'Instead of --workdir: a folder of models, <model>/<version>/.',
)
flags.DEFINE_string(
  'host',
  _DEFAULTS.host,
  'Name or address to listen on. Other than this machine alone needs '
  '--token_file or --tls_client_ca, or --is_open.',
)
flags.DEFINE_integer(
  'rest_api_port',
  _DEFAULTS.rest_api_port,
  'TCP port of the REST API; 0 takes any free one.',
  lower_bound=0,
  upper_bound=65535,
)
flags.DEFINE_integer(
  'port',
  _DEFAULTS.port,
  'TCP port of the gRPC API; 0 takes any free one.',
  lower_bound=0,
  upper_bound=65535,
)
flags.DEFINE_integer(
  'max_request_bytes',
  _DEFAULTS.max_request_bytes,
  'Maximum size of a request; larger ones are refused.',
  lower_bound=1,
  upper_bound=2**31 - 1,
)
flags.DEFINE_integer(
  'max_rows',
  _DEFAULTS.max_rows,
  'Maximum number of rows of a request.',
  lower_bound=1,
)
flags.DEFINE_integer(
  'max_waiting',
  _DEFAULTS.max_waiting,
  'Small requests that may wait, and gRPC requests at a time; half as many '
  'large ones may wait. Others are refused (503).',
  lower_bound=1,
)
flags.DEFINE_integer(
  'max_connections',
  _DEFAULTS.max_connections,
  'Maximum number of connections to each of the two APIs.',
  lower_bound=1,
  upper_bound=2**31 - 1,
)
flags.DEFINE_float(
  'receive_seconds',
  _DEFAULTS.receive_seconds,
  'Time limit for the headers of a request, and for its body.',
  lower_bound=0.1,
  upper_bound=_DAY,
)
flags.DEFINE_float(
  'answer_seconds',
  _DEFAULTS.answer_seconds,
  'Time limit from a whole request to its answer.',
  lower_bound=0.1,
  upper_bound=_DAY,
)
flags.DEFINE_bool(
  'access_log',
  _DEFAULTS.access_log,
  'Whether to write a line of JSON for each request to stdout.',
)
flags.DEFINE_string(
  'token_file',
  _DEFAULTS.token_file,
  'JSON file of the tokens that may ask, name -> {"sha256": ..., "client_id": '
  '...}; see docs/serving.md. It is read again when it changes.',
)
flags.DEFINE_bool(
  'is_open',
  _DEFAULTS.is_open,
  'Whether to answer unauthenticated requests of other machines: on a trusted '
  'network, or behind a proxy that authenticates.',
)
flags.DEFINE_string(
  'tls_certificate',
  _DEFAULTS.tls_certificate,
  "PEM file of the server's certificate and its chain, for TLS at both ports. "
  'This and the files of the next two flags are read again when they change.',
)
flags.DEFINE_string(
  'tls_key',
  _DEFAULTS.tls_key,
  'PEM file of the private key of --tls_certificate, without a password.',
)
flags.DEFINE_string(
  'tls_client_ca',
  _DEFAULTS.tls_client_ca,
  "PEM file of the CAs of clients' certificates, which are then required.",
)
_PRINT_TF_SERVING_CONFIG = flags.DEFINE_bool(
  'print_tf_serving_config',
  False,
  "Instead of serving: prints the docker command of TensorFlow Serving's "
  'image for these models, in a local folder, and writes the files that they '
  'name to tf_serving/ beside it.',
)
flags.DEFINE_bool(
  'enable_batching',
  _DEFAULTS.enable_batching,
  'Whether small requests for one signature that wait are answered together.',
)
_PORT_FILE = flags.DEFINE_string(
  'port_file',
  None,
  'JSON file to write the ports to once the server is ready; removed when the '
  'server ends.',
)


def serve() -> None:
  """Serves models until SIGTERM or SIGINT."""
  if (_WORKDIR.value is None) == (_MODEL_BASE_PATH.value is None):
    raise errors.UserError('give either --workdir or --model_base_path')
  place, part = _MODEL_BASE_PATH.value, ''
  if place is None:
    place, part = _WORKDIR.value, 'export'
  if objects.is_address(place):
    if _PRINT_TF_SERVING_CONFIG.value:
      raise errors.ConfigError(
        f'{place}: --print_tf_serving_config takes a local folder: a copy of a '
        'published one would not follow new versions. Export to a folder that '
        'TensorFlow Serving sees, or serve the address without this flag'
      )
    address, folder = mirror_lib.publication(place)
    mirror = mirror_lib.Mirror(address, f'{folder}/{part}'.strip('/'))
    with mirror.following():
      _serve_folder(str(mirror.folder))
  else:
    _serve_folder(os.path.join(place, part))


def _serve_folder(folder: str) -> None:
  config = server_config.ServerConfig(
    **{name: flags.FLAGS[name].value for name in _DEFAULTS._fields}
  )
  if _PRINT_TF_SERVING_CONFIG.value:
    from tff_algos.serving import tf_serving_config

    out = pathlib.Path(folder).absolute().parent / 'tf_serving'
    print(tf_serving_config.write(folder, out, config))
    return
  # gRPC would log each failed handshake.
  os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
  from tff_algos.serving import models, server

  server.serve_until_signal(models.ModelStore(folder), config, _PORT_FILE.value)


if __name__ == '__main__':
  command.run(serve, mirrors_folders=False)
