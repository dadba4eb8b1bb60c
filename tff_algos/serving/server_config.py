"""Options of the model server, without an import of TensorFlow."""

from typing import NamedTuple


class ServerConfig(NamedTuple):
  """Address and limits of a server.

  Attributes:
    host: Name or address to listen on. Other than this machine alone needs
      `token_file` or `tls_client_ca`, or `is_open`.
    rest_api_port: TCP port of the REST API; 0 takes any free one.
    port: TCP port of the gRPC API; 0 takes any free one.
    max_request_bytes: Maximum size of a request, and of the arrays of an
      answer; larger ones are refused.
    max_rows: Maximum number of rows of a request.
    max_waiting: Small requests that may wait, and gRPC requests at a time; half
      as many large ones may wait. Others are refused (503).
    max_connections: Maximum number of connections to each of the two APIs.
    receive_seconds: Time limit for the headers of a request, and for its body.
    answer_seconds: Time limit from a whole request to its answer, and for the
      client to receive it.
    access_log: Whether to write a line of JSON for each request to stdout.
    token_file: JSON file of the tokens that may ask, name -> `{"sha256": ...,
      "client_id": ...}`; see docs/serving.md. It is read again when it changes.
      None for everybody.
    is_open: Whether to answer unauthenticated requests of other machines: on a
      trusted network, or behind a proxy that authenticates.
    tls_certificate: PEM file of the server's certificate and its chain, for TLS
      at both ports; None for no TLS. This and the next two files are read again
      when they change.
    tls_key: PEM file of the private key of `tls_certificate`, without a
      password.
    tls_client_ca: PEM file of the CAs of clients' certificates, which are then
      required (mTLS).
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
