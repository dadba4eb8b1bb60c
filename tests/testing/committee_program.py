"""One member of a committee as a process: votes, and says what came of it.

Reads its part as a line of JSON from stdin; writes a line when it begins and
the outcome when it ends.
"""

import json
import sys

from tests.testing import committees, socket_members
from tff_algos.algorithms.cmfl.consensus import ballot, endpoint


def main() -> None:
  part = json.loads(sys.stdin.readline())
  opened = ballot.Ballot(
    tuple(part['committee']),
    'r1',
    part['seed'],
    ballot.Limits(part['max_views'], part['timeout_seconds']),
  )
  keys = {other: bytes.fromhex(key) for other, key in part['keys'].items()}
  ours = endpoint.Endpoint(
    opened, part['member'], committees.TRUTH, keys, part['behaviour']
  )
  print('begin', flush=True)
  outcome = socket_members.take_part(
    ours, part['addresses'], linger_seconds=part['linger_seconds']
  )
  print(json.dumps([*outcome[:3], ours.num_refused]), flush=True)


if __name__ == '__main__':
  try:
    main()
  except KeyboardInterrupt:
    sys.exit(130)
