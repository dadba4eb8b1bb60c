"""Surveys of made-up examples and the plans that partitions make of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pipelines.examples import hashing
from pipelines.partitions import plan as partition_plan
from pipelines.steps import planning
from tests.testing import raw_data

TURNS = ('upright', 'rotated')

# Every law, over a few clients.
LAWS = {
  '10:90': {'law': '10:90', 'num_clients': 6},
  'random': {'law': 'random', 'num_clients': 6, 'num_unseen_clients': 2},
  'linear': {'law': 'linear', 'num_clients': 6},
  'iid': {'law': 'iid', 'num_clients': 6},
  'shards': {
    'law': 'shards',
    'num_clients': 10,
    'options': {'shards_per_client': 2},
  },
  'classes_per_client': {
    'law': 'classes_per_client',
    'num_clients': 8,
    'num_unseen_clients': 2,
    'options': {'classes_per_client': 3},
  },
  'dirichlet': {
    'law': 'dirichlet',
    'num_clients': 6,
    'options': {'concentration': 0.5},
  },
  'class_groups': {
    'law': 'class_groups',
    'num_clients': 6,
    'num_unseen_clients': 3,
    'options': {'group_sizes': (2, 3, 5)},
  },
  'consecutive_classes': {
    'law': 'consecutive_classes',
    'num_clients': 5,
    'options': {'classes_per_client': 2, 'offset': 0, 'reserve': 0},
  },
  'natural': {'law': 'natural', 'num_unseen_clients': 1},
}
MIXING = ('10:90', 'random', 'linear', 'iid')


def keys(names: Iterable[Any]) -> np.ndarray:
  """Returns a hash of each name, uint8 `[n, KEY_BYTES]`."""
  return np.array(
    [np.frombuffer(hashing.text_key(str(name)), np.uint8) for name in names],
    np.uint8,
  ).reshape(-1, hashing.KEY_BYTES)


def survey(
  n: int,
  *,
  native: np.ndarray | None = None,
  client: Any = '',
  is_test: np.ndarray | None = None,
  y: np.ndarray | None = None,
  group: Any = None,
  time: np.ndarray | None = None,
) -> planning.Survey:
  """Returns a survey of `n` different examples, ten classes in turn."""
  return planning.Survey(
    key=keys(range(n)),
    is_test=np.zeros(n, bool) if is_test is None else is_test,
    native_source=np.full(n, -1) if native is None else native,
    client=np.broadcast_to(np.array(client), (n,)),
    y=np.arange(n, dtype=np.int32) % 10 if y is None else y,
    group=np.empty((n, 0), np.uint8) if group is None else keys(group),
    time=np.empty(0) if time is None else time,
  )


def make_plan(
  surveyed: planning.Survey | None,
  *,
  names: Sequence[str] = TURNS,
  has_test_split: bool = False,
  num_classes: int = 10,
  **overrides: Any,
) -> planning.Plan:
  """Returns a plan by `raw_data.digits_config` with some entries replaced."""
  config = raw_data.digits_config(**overrides)
  partition_plan.check_config(
    config,
    num_sources=len(names),
    num_classes=num_classes,
    has_test_split=has_test_split,
  )
  return partition_plan.make_plan(
    surveyed,
    config,
    names,
    num_classes=num_classes,
    has_test_split=has_test_split,
  )


def count(plan: planning.Plan, source: int, split: int) -> np.ndarray:
  """Returns how many examples of a kind each client got."""
  owners = plan.owners[source][plan.roles == split]
  return np.bincount(
    owners[owners != planning.NOBODY], minlength=len(plan.client_ids)
  )


def make_law_plan(
  law: str, surveyed: planning.Survey, **overrides: Any
) -> planning.Plan:
  """Returns a plan by one of `LAWS` with some entries replaced."""
  mixes = law in MIXING
  sizes = {'law': 'uniform', 'minimum': 5, 'maximum': 20}
  turns = {'kind': 'rotations', 'quarter_turns': (0, 1)}
  return make_plan(
    surveyed,
    **{
      'names': TURNS if mixes else ('all',),
      'distributions': turns if mixes else {},
      'partition': LAWS[law],
      'sizes': sizes if mixes else {},
    }
    | overrides,
  )
