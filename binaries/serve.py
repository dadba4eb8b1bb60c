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

# The longest wait, in seconds: sockets overflow from some years on.
_DAY = 86_400.0


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir',
    None,
    'Folder of a run; its models in <workdir>/export are served. '
    'May be an address of an object store, as the next flag (docs/scale.md).',
  )
  model_base_path = flags.DEFINE_string(
    'model_base_path',
    None,
    'Instead of --workdir: a folder of models, <model>/<version>/.',
  )
  config = command.define_options(
    server_config.ServerConfig,
    server_config.ServerConfig._fields,
    rest_api_port=(0, 65535),
    port=(0, 65535),
    max_request_bytes=(1, 2**31 - 1),
    max_rows=(1, None),
    max_waiting=(1, None),
    max_connections=(1, 2**31 - 1),
    receive_seconds=(0.1, _DAY),
    answer_seconds=(0.1, _DAY),
  )
  prints_tf_serving_config = flags.DEFINE_bool(
    'print_tf_serving_config',
    False,
    "Instead of serving: prints the docker command of TensorFlow Serving's "
    'image for these models, in a local folder, and writes the files that they '
    'name to tf_serving/ beside it.',
  )
  port_file = flags.DEFINE_string(
    'port_file',
    None,
    'JSON file to write the ports to once the server is ready; removed when '
    'the server ends, unless another has written its own there.',
  )

  def main() -> None:
    if (workdir.value is None) == (model_base_path.value is None):
      raise errors.UserError('give either --workdir or --model_base_path')
    place, part = model_base_path.value, ''
    if place is None:
      place, part = workdir.value, 'export'
    if objects.is_address(place):
      if prints_tf_serving_config.value:
        raise errors.ConfigError(
          f'{place}: --print_tf_serving_config takes a local folder: a copy of '
          'a published one would not follow new versions. Export to a folder '
          'that TensorFlow Serving sees, or serve the address without this flag'
        )
      address, folder = mirror_lib.publication(place)
      mirror = mirror_lib.Mirror(address, f'{folder}/{part}'.strip('/'))
      with mirror.following():
        serve_folder(str(mirror.folder))
    else:
      serve_folder(os.path.join(place, part))

  def serve_folder(folder: str) -> None:
    options = config()
    if prints_tf_serving_config.value:
      from tff_algos.serving import tf_serving_config

      out = pathlib.Path(folder).absolute().parent / 'tf_serving'
      print(tf_serving_config.write(folder, out, options))
      return
    # gRPC would log each failed handshake.
    os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
    from tff_algos.serving import models, server

    server.serve_until_signal(
      models.ModelStore(folder), options, port_file.value
    )

  command.run(main, mirrors_folders=False)


if __name__ == '__main__':
  _main()
