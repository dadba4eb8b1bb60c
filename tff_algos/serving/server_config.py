"""Options of the model server, without an import of TensorFlow."""

from typing import NamedTuple


class ServerConfig(NamedTuple):
  """Address and limits of a server.

  Attributes:
    host: Name or address; the default accepts local connections only.
    rest_api_port: TCP port of the REST API; 0 takes any free one.
    port: TCP port of the gRPC API; 0 takes any free one.
    max_request_bytes: Largest request, and largest arrays of an answer.
    max_rows: Most rows of one request.
    max_waiting: Small requests that may wait, see `lanes.Lanes`, and most gRPC
      requests at a time; half as many large ones may wait.
    max_connections: Most connections to each of the two APIs.
    receive_seconds: Time for a request's headers, and for its body.
    answer_seconds: Time from a whole request to its answer, and for the client
      to receive it.
    access_log: Whether each request is a line of JSON on stdout.
    token_file: Tokens that may ask, see `access.Tokens`; None for everybody.
    is_open: Whether everybody may ask also from other machines.
    tls_certificate: PEM file of the server's certificate and its chain; None
      for no TLS.
    tls_key: PEM file of its private key.
    tls_client_ca: PEM file of the CAs of clients' certificates, which are then
      required (mTLS).
    enable_batching: Whether small requests that wait are answered together.
  """

  host: str = '127.0.0.1'
  rest_api_port: int = 8501
  port: int = 8500
  max_request_bytes: int = 16 * 2**20
  max_rows: int = 65_536
  max_waiting: int = 64
  max_connections: int = 256
  receive_seconds: float = 10.0
  answer_seconds: float = 60.0
  access_log: bool = False
  token_file: str | None = None
  is_open: bool = False
  tls_certificate: str | None = None
  tls_key: str | None = None
  tls_client_ca: str | None = None
  enable_batching: bool = True
