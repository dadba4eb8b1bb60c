"""The states from which a program may run a round of an experiment again."""

from collections.abc import Iterator
from typing import Any

from tff_algos.experiments import session
from tff_algos.training import loop


def starts(opened: session.Session) -> Iterator[tuple[int, Any]]:
  """Yields rounds and server states: the initial one, and each checkpoint.

  The store then holds the clients' states of that round.

  Raises:
    CheckpointError: If there is no checkpoint.
  """
  saved = opened.checkpoints.rounds()
  if not saved:
    opened.restore()  # It knows what to say.
  num_clients, seed = len(opened.dataset.client_ids), opened.config.seed
  yield 0, loop.initial_server_state(opened.algorithm, num_clients, seed)
  for round_num in saved:
    yield opened.restore(round_num)
