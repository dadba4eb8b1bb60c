"""Verification of committees' decisions from an audit log alone.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022): distances (the inverse of Eq. 8),
selection, the mean by examples (Eq. 5), the step (Eq. 6) and the election. In
NumPy and float64, so that it shares no code with the verified computation.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.algorithms.cmfl.consensus import statements

# Members average in float32 and in another order.
_ROUNDING = 1e-6
# What values of another type, number or shape than a log has raise here.
_MALFORMED = (
  ArithmeticError,
  AttributeError,
  LookupError,
  OSError,
  TypeError,
  ValueError,
)

Arrays = Mapping[str, np.ndarray]


class Rules(NamedTuple):
  """Options of CMFL that determine a committee's decisions.

  Attributes:
    upload: `'update'`, `'model'` or `'last_gradient'`.
    server_learning_rate: round number -> eta_t over the clients' rate; eta_t
      itself for `'last_gradient'`.
    distance: `'squared'`, or `'sum_over_weights'`.
    selection: `'most_similar'`, `'least_similar'`, `'random'` or `'all'`.
    election_center: In [0, 1].
    has_uploads: Whether uploads and models of every round were to be stored.
  """

  upload: str
  server_learning_rate: Callable[[int], float]
  distance: str
  selection: str
  election_center: float
  has_uploads: bool


class Verdict(NamedTuple):
  """Result of verifying a round.

  Attributes:
    round_num: The round.
    has_uploads: Whether its uploads were stored; otherwise their digests,
      distances and mean cannot be verified.
    faults: Descriptions of all violations; empty if the round is correct.
    line_hash: SHA-256 of its line.
  """

  round_num: int
  has_uploads: bool
  faults: tuple[str, ...]
  line_hash: str


def verify(workdir: str | os.PathLike[str], rules: Rules) -> list[Verdict]:
  """Returns a verdict on every round of a log.

  Raises:
    DataError: If there is no log.
  """
  verdicts, before, hash_before = [], None, ''
  # By the last accepted vote: a committee stays until its vote is accepted.
  elected: set[str] = set()
  for entry, line_hash in audit_log.read(workdir):
    faults, arrays = [], None
    try:
      faults += _chain_faults(entry, before, hash_before, elected)
      if 'clients' in entry:
        arrays = audit_log.read_arrays(workdir, entry['round'])
        faults += _decision_faults(entry, rules)
        if arrays is not None:
          faults += _array_faults(entry, arrays, rules)
        elif rules.has_uploads:
          faults.append('its uploads are missing')
        if (entry['vote'] or {}).get('is_accepted'):
          elected = {*entry['elected']}
    except _MALFORMED as error:
      arrays = None
      faults.append(f'it cannot be read ({error!r})')
    verdicts.append(
      Verdict(entry['round'], arrays is not None, (*faults,), line_hash)
    )
    hash_before = line_hash
    if 'clients' in entry:
      before = entry
    elif before is not None:
      # All training was lost: there is no proposal, and the model is unchanged.
      before = {**before, 'round': entry['round']}
  return verdicts


def _chain_faults(
  entry, before, hash_before: str, elected: set[str]
) -> Iterator[str]:
  """Yields violations between a round and the rounds before."""
  if entry['previous'] != hash_before:
    yield 'the line before it does not have the recorded hash'
  if before is None:
    return
  if entry['round'] != before['round'] + 1:
    yield f'it follows round {before["round"]}'
  if 'clients' not in entry:
    return
  if entry.get('before') != before.get('after'):
    yield 'it does not start from the model that the round before ended with'
  strangers = {*entry.get('committee', ())} - elected
  if elected and strangers:
    yield f'its committee has members not elected: {_listed(strangers)}'


def _decision_faults(entry, rules: Rules) -> Iterator[str]:
  """Yields violations by the recorded distances and the vote."""
  scored = {one['id'] for one in entry['clients'] if one['is_member']}
  if scored != {*entry['committee']}:
    yield (
      f'it was scored by {_listed(scored)}, but its committee is '
      f'{_listed(entry["committee"])}'
    )
  training, has_members = _scored(entry)
  ranking = sorted(training, key=lambda k: (entry['clients'][k]['distance'], k))
  names = [entry['clients'][k]['id'] for k in ranking if has_members]
  selected, elected = {*entry['selected']}, {*entry['elected']}
  expected = {
    'most_similar': {*names[: len(selected)]},
    'least_similar': {*names[len(names) - len(selected) :]},
    'random': selected & {*names},
    'all': {*names},
  }[rules.selection]
  if selected != expected:
    yield (
      f'it averaged {_listed(selected)}, but the rule selects '
      f'{_listed(expected)}'
    )
  first = math.floor((len(names) - len(elected)) * rules.election_center)
  window = {*names[first : first + len(elected)]}
  if names and not elected:
    yield 'it elected none'
  elif elected != window:
    yield (
      f'it elected {_listed(elected)}, but the rule elects {_listed(window)}'
    )
  is_accepted = bool((entry['vote'] or {}).get('is_accepted'))
  if entry['after'] != entry['proposed' if is_accepted else 'before']:
    yield 'the model after it is not the one that the vote decided'


def _array_faults(entry, arrays: Arrays, rules: Rules) -> Iterator[str]:
  """Yields violations by the stored uploads and models."""
  models = {name: _part(arrays, name) for name in ('before', 'proposed')}
  for name, model in models.items():
    if statements.digest_arrays(model) != entry[name]:
      yield f'the model {name!r} has another digest than the recorded one'
  uploads = _part(arrays, 'upload')
  for k, client in enumerate(entry['clients']):
    if client['is_valid'] and client['upload'] != upload_digest(uploads, k):
      yield f'the upload of {client["id"]} has another digest than the recorded'
  if rules.upload == 'model':
    uploads = {n: models['before'][n] - rows for n, rows in uploads.items()}
  training, has_members = _scored(entry)
  if has_members:
    found = _distances(entry, uploads, rules.distance)
    for k in training:
      client = entry['clients'][k]
      if not math.isclose(
        client['distance'], found[k], rel_tol=_ROUNDING, abs_tol=1e-12
      ):
        yield (
          f'the distance of {client["id"]} is {found[k]:.6g}, not '
          f'{client["distance"]:.6g}'
        )
  rate = rules.server_learning_rate(entry['round'])
  if _is_elsewhere(entry, uploads, models, rate):
    yield 'the aggregate is not the mean of the uploads that were selected'


def _is_elsewhere(entry, uploads, models, rate: float) -> bool:
  """Returns whether the proposed model differs from the step by the uploads."""
  selected = {*entry['selected']}
  weights = np.array(
    [
      client['num_examples'] * (client['id'] in selected)
      for client in entry['clients']
    ]
  )
  total = weights.sum()
  for name, start in models['before'].items():
    # Uploads that are not selected may be NaN or infinite.
    rows = uploads[name][weights > 0].astype(np.float64)
    mean = np.tensordot(weights[weights > 0], rows, 1) / (total or 1)
    away = abs(start - rate * mean - models['proposed'][name])
    scale = abs(start).max(initial=0) + rate * abs(rows).max(initial=0)
    if not (away <= 4 * _ROUNDING * scale).all():
      return True
  return False


def _scored(entry) -> tuple[list[int], bool]:
  """Returns the training clients that uploaded, and whether a member did."""
  valid = [k for k, one in enumerate(entry['clients']) if one['is_valid']]
  training = [k for k in valid if not entry['clients'][k]['is_member']]
  return training, len(training) < len(valid)


def _distances(entry, uploads: Arrays, distance: str) -> np.ndarray:
  """Returns 1 / P_k of Eq. 8, pair by pair, float64 `[clients]`."""
  members = [
    k
    for k, client in enumerate(entry['clients'])
    if client['is_member'] and client['is_valid']
  ]
  total = np.zeros(len(entry['clients']))
  for leaf in uploads.values():
    rows = leaf.reshape(len(leaf), -1).astype(np.float64)
    for member in members:
      squared = ((rows - rows[member]) ** 2).sum(axis=1)
      total += squared if distance == 'squared' else np.sqrt(squared)
  return total / len(members)


def upload_digest(uploads: Arrays, position: int) -> str:
  """Returns the digest of one of several stacked uploads.

  Args:
    uploads: name -> `[clients, ...]`.
    position: Of the client.
  """
  return statements.digest_arrays(
    {name: rows[position] for name, rows in uploads.items()}
  )


def arrays_of(upload: Arrays, before: Arrays, proposed: Arrays) -> Arrays:
  """Returns the arrays to store for a round, by the names that `verify` reads.

  Args:
    upload: Of all clients, name -> `[clients, ...]`.
    before: The model before the round, name -> `[...]`.
    proposed: The proposed model, name -> `[...]`.
  """
  parts = {'upload': upload, 'before': before, 'proposed': proposed}
  return {
    f'{part}:{name}': array
    for part, arrays in parts.items()
    for name, array in arrays.items()
  }


def _part(arrays: Arrays, part: str) -> dict[str, np.ndarray]:
  return {
    name.removeprefix(f'{part}:'): array
    for name, array in arrays.items()
    if name.startswith(f'{part}:')
  }


def _listed(ids: Any) -> str:
  return ', '.join(sorted(ids)) or 'none'
