"""Routing of requests to the versions of a model: labels, and the canary.

A request that names no version is answered by the canary, if there is one and
all clients that the request is for are among its share; else by the stable
version. A client stays with its version: it is chosen by a hash of the client's
id, so that the canary keeps its clients when its share grows.
"""

import hashlib
from collections.abc import Callable

from tff_algos.export import labels as labels_lib
from tff_algos.serving import batching, models, served_model


def ask(
  store: models.ModelStore,
  name: str,
  version: int | str | None,
  build: Callable[[served_model.ServedModel], batching.Question],
) -> batching.Question:
  """Returns the question of a request to the version that is to answer it.

  Args:
    store: Models, as the caller sees them.
    name: Name of the model.
    version: Its version, or a label; None if the request names none.
    build: Returns the question to a version.

  Raises:
    RequestError: If there is no such model or version, or `build` raises it.
  """
  model = store.get(name, version)
  question = build(model)
  labels = store.canary(name)
  if version is not None or labels is None:
    return question
  # Whom inputs without clients are for is not known: the caller stands for all.
  clients = model.clients(question.inputs) or {store.caller.key}
  if all(is_canary(client, labels) for client in clients):
    store.version = None  # Should there be no canary: not the stable one.
    return build(store.get(name, labels_lib.CANARY))
  return question


def is_canary(client_id: str, labels: labels_lib.Labels) -> bool:
  """Returns whether a client is among the share of the canary.

  The shares of two canaries are independent.
  """
  text = f'{labels.versions[labels_lib.CANARY]}/{client_id}'
  digest = hashlib.sha256(text.encode(errors='replace')).digest()
  position = int.from_bytes(digest[:8], 'big') / 2**64
  return position < (labels.canary_share or 0)
