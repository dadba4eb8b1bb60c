"""Writes the audit log of committees that never were."""

import pathlib

from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.core import seeds


def write(
  workdir: pathlib.Path,
  client_ids: list[str],
  attackers: tuple[str, ...] = (),
  num_rounds: int = 12,
  first_round: int = 1,
) -> None:
  """Writes rounds of a third of the clients, half of the trained averaged."""
  log = audit_log.AuditLog(workdir)
  log.resume(0, {})
  for round_num in range(first_round, first_round + num_rounds):
    generator = seeds.numpy_generator(0, 'fake_audit', round_num)
    active = generator.permutation(client_ids)[: max(3, len(client_ids) // 3)]
    committee, training = active[: len(active) // 3], active[len(active) // 3 :]
    distances = {
      one: float(generator.lognormal(3.0 if one in attackers else 0.0, 0.5))
      for one in training
    }
    ranking = sorted(training, key=distances.get)
    log.append(
      {
        'round': round_num,
        'committee': [*committee],
        'clients': [
          {
            'id': one,
            'is_member': one in committee,
            'is_valid': True,
            'distance': distances.get(one, 0.0),
          }
          for one in active
        ],
        'selected': ranking[: len(ranking) // 2],
        'vote': {'is_accepted': 1.0},
      },
      {},
    )
