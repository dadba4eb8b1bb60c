"""Options of the model server, without an import of TensorFlow."""

from typing import NamedTuple


class ServerConfig(NamedTuple):
  """Address and limits of a server.

  Attributes:
    host: Name or address; the default accepts local connections only.
    rest_api_port: TCP port of the REST API; 0 takes any free one.
    port: TCP port of the gRPC API; 0 takes any free one.
    max_request_bytes: Larger requests are refused.
  """

  host: str = '127.0.0.1'
  rest_api_port: int = 8501
  port: int = 8500
  max_request_bytes: int = 16 * 2**20
