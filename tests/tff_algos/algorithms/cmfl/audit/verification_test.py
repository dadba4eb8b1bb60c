"""A log of two rounds that was made by hand, and what may be wrong with it."""

import copy
import json

import numpy as np
import pytest

from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.algorithms.cmfl.consensus import statements

_RULES = verification.Rules(
  'update',
  lambda round_num: 0.5 / round_num,
  'squared',
  'most_similar',
  0.5,
  False,
)
# a and b are the committee; uploads of two weights. Distances of c, d and e, the
# mean of squared ones to (0, 0) and (2, 0): 1, (4 + 8) / 2 = 6 and (25 + 29) / 2.
_UPLOADS = {
  'w': np.array([[0, 0], [2, 0], [1, 0], [2, 2], [0, 5]], np.float32),
}
_DISTANCES = [2, 2, 1, 6, 27]
_EXAMPLES = [1, 1, 3, 1, 9]
# (3 (1, 0) + (2, 2)) / 4 = (1.25, 0.5), half of which is subtracted.
_MODELS = [{'w': np.array(w, np.float32)} for w in ([4, 4], [3.375, 3.75])]


def _entry(committee=('a', 'b'), **changes):
  ids = 'abcde'
  digests = [statements.digest_arrays(model) for model in _MODELS]
  clients = [
    {
      'id': ids[k],
      'is_member': ids[k] in (committee or ()),
      'is_valid': True,
      'num_examples': _EXAMPLES[k],
      'distance': float(_DISTANCES[k]),
      'upload': statements.digest_arrays({'w': _UPLOADS['w'][k]}),
    }
    for k in range(5)
  ]
  return {
    'round': 1,
    'committee': committee,
    'clients': clients,
    'selected': ['c', 'd'],
    'elected': ['d'],
    'before': digests[0],
    'proposed': digests[1],
    'vote': {'is_accepted': 1.0},
    'after': digests[1],
    **changes,
  }


def _arrays(uploads=_UPLOADS, before=_MODELS[0], proposed=_MODELS[1]):
  return dict(verification.arrays_of(uploads, before, proposed))


def _faults(folder, entry, arrays=None, rules=_RULES):
  log = audit_log.AuditLog(folder)
  log.resume(0, {})
  log.append(entry, _arrays() if arrays is None else arrays)
  (verdict,) = verification.verify(folder, rules)
  return verdict.faults


def test_a_round_that_was_computed_by_hand_verifies(tmp_path):
  assert _faults(tmp_path, _entry()) == ()
  assert verification.verify(tmp_path, _RULES)[0].has_uploads


def test_without_uploads_what_was_recorded_is_verified(tmp_path):
  assert _faults(tmp_path, _entry(), {}) == ()
  assert not verification.verify(tmp_path, _RULES)[0].has_uploads
  assert _faults(tmp_path, _entry(selected=['c', 'e']), {})


def test_uploads_that_were_to_be_stored_are_missed(tmp_path):
  rules = _RULES._replace(has_uploads=True)
  assert _faults(tmp_path, _entry(), rules=rules) == ()
  (tmp_path / 'audit' / 'round_000001.npz').unlink()
  (verdict,) = verification.verify(tmp_path, rules)
  assert verdict.faults == ('its uploads are missing',)


def test_models_as_uploads_are_held_against_the_model_before(tmp_path):
  models = {'w': _MODELS[0]['w'] - _UPLOADS['w']}
  entry = _entry()
  for k, client in enumerate(entry['clients']):
    client['upload'] = statements.digest_arrays({'w': models['w'][k]})
  rules = _RULES._replace(upload='model')
  assert _faults(tmp_path, entry, _arrays(models), rules) == ()


def test_distances_of_single_weights(tmp_path):
  """To (0, 0) and (2, 0), not squared, by weights x and y."""
  uploads = {'x': _UPLOADS['w'][:, :1], 'y': _UPLOADS['w'][:, 1:]}
  models = [{'x': model['w'][:1], 'y': model['w'][1:]} for model in _MODELS]
  entry = _entry()
  digests = [statements.digest_arrays(model) for model in models]
  entry.update(before=digests[0], proposed=digests[1], after=digests[1])
  for k, (client, distance) in enumerate(
    zip(entry['clients'], [1, 1, 1, 3, 6], strict=True)
  ):
    client['distance'] = distance
    client['upload'] = verification.upload_digest(uploads, k)
  rules = _RULES._replace(distance='sum_over_weights')
  assert _faults(tmp_path, entry, _arrays(uploads, *models), rules) == ()


def test_who_is_not_valid_is_nowhere(tmp_path):
  """c sent NaN, was refused, and is neither ranked nor digested."""
  entry = _entry(selected=['d', 'e'], elected=['d'])
  entry['clients'][2].update(is_valid=False, distance=0.0, upload='')
  proposed = {'w': np.float32([4 - 0.5 * 0.2, 4 - 0.5 * 4.7])}
  entry['proposed'] = entry['after'] = statements.digest_arrays(proposed)
  assert _faults(tmp_path, entry, _arrays(proposed=proposed)) == ()


@pytest.mark.parametrize(
  ('selection', 'selected', 'is_right'),
  [
    ('least_similar', ['d', 'e'], True),
    ('least_similar', ['c', 'd'], False),
    ('random', ['c', 'e'], True),
    ('random', ['a', 'c'], False),
    ('all', ['c', 'd', 'e'], True),
    ('all', ['c', 'd'], False),
  ],
)
def test_each_strategy_has_its_own_choice(
  tmp_path, selection, selected, is_right
):
  rules = _RULES._replace(selection=selection)
  faults = _faults(tmp_path, _entry(selected=selected), {}, rules)
  assert (faults == ()) == is_right


def _tampered(change):
  entry, arrays = copy.deepcopy(_entry()), _arrays()
  change(entry, arrays)
  return entry, arrays


@pytest.mark.parametrize(
  ('change', 'words'),
  [
    (lambda e, a: e.update(selected=['c', 'e']), 'averaged c, e, but the rule'),
    (lambda e, a: e.update(elected=['c']), 'elected c, but the rule elects d'),
    (lambda e, a: e.update(elected=[]), 'it elected none'),
    (
      lambda e, a: e.update(committee=['a', 'd']),
      'it was scored by a, b, but its committee is a, d',
    ),
    (lambda e, a: e.update(after=e['before']), 'the vote decided'),
    (lambda e, a: e.update(vote=None), 'the vote decided'),
    (lambda e, a: e['clients'][3].update(distance=6.1), 'distance of d is 6'),
    (lambda e, a: e['clients'][4].update(num_examples=2), None),
    (lambda e, a: e['clients'][2].update(num_examples=2), 'the aggregate'),
    (
      lambda e, a: a.update({'upload:w': a['upload:w'] + np.float32(1e-3)}),
      'the upload of a has another digest',
    ),
    (
      lambda e, a: a.update({'proposed:w': a['proposed:w'] * 1.001}),
      "the model 'proposed' has another digest",
    ),
    (lambda e, a: a.pop('upload:w'), 'cannot be read'),
  ],
)
def test_what_was_changed_is_found(tmp_path, change, words):
  """But for a weight that counts in nothing."""
  faults = '; '.join(_faults(tmp_path, *_tampered(change)))
  assert (words in faults) if words else not faults


def _rows(change):
  return lambda e, a: a.update({'upload:w': change(a['upload:w'])})


@pytest.mark.parametrize(
  'change',
  [
    _rows(lambda rows: rows[:3]),
    _rows(lambda rows: rows[:0]),
    _rows(lambda rows: rows[0, 0]),
    _rows(lambda rows: rows.astype(str)),
    lambda e, a: e['clients'].append(dict(e['clients'][4])),
    lambda e, a: e['clients'].clear(),
    lambda e, a: e['clients'].insert(0, 'a'),
    lambda e, a: e['clients'][2].pop('distance'),
    lambda e, a: e.update(round='7'),
    lambda e, a: e.update(round='x' * 300),
    lambda e, a: e.update(round=10**300),
    lambda e, a: e.update(round=0),  # A rate of 0.5 / 0.
    lambda e, a: e.update(vote='yes'),
    *(
      lambda e, a, name=name: e.update({name: None})
      for name in ('round', 'clients', 'selected', 'elected')
    ),
    *(
      lambda e, a, name=name: e.update({name: 7})
      for name in ('before', 'proposed', 'after')
    ),
    *(
      lambda e, a, name=name, value=value: e['clients'][2].update({name: value})
      for name in ('id', 'num_examples', 'distance', 'upload')
      for value in (None, 'x', [1.0], {})
    ),
    lambda e, a: e['clients'][2].update(is_member='x'),
    lambda e, a: e['clients'][2].update(is_valid=None),
  ],
)
def test_values_of_another_form_are_faults(tmp_path, change):
  entry, arrays = _tampered(change)
  audit_log.AuditLog(tmp_path).append(entry, {})
  for number in (0, 1):
    path = tmp_path / 'audit' / f'round_{number:06d}.npz'
    np.savez(path, **arrays)
  (verdict,) = verification.verify(tmp_path, _RULES)
  assert verdict.faults
  assert verdict.round_num == entry['round']


def test_a_model_that_is_not_the_mean_is_found_with_its_own_digest(tmp_path):
  """As a committee would that agreed on a lie: all digests are right."""
  lie = {'w': _MODELS[1]['w'] + np.float32(1e-3)}
  digest = statements.digest_arrays(lie)
  faults = _faults(
    tmp_path, _entry(proposed=digest, after=digest), _arrays(proposed=lie)
  )
  assert faults == (
    'the aggregate is not the mean of the uploads that were selected',
  )


def _second(committee=('d',), **changes):
  """A round of the committee d: by distances the others are c, a, b and e."""
  return _entry(committee, selected=['a', 'c'], elected=['a'], **changes)


def _write_two(folder, **changes):
  first = _entry()
  second = _second(
    **{
      'round': 2,
      'before': first['after'],
      'after': first['after'],
      'vote': {'is_accepted': 0.0},
      **changes,
    }
  )
  log = audit_log.AuditLog(folder)
  for entry in (first, second):
    log.append(entry, {})


def test_rounds_follow_from_each_other(tmp_path):
  _write_two(tmp_path)
  assert [v.faults for v in verification.verify(tmp_path, _RULES)] == [(), ()]


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'round': 3}, 'it follows round 1'),
    ({'before': 'x', 'after': 'x'}, 'does not start from the model'),
    ({'committee': ['d', 'e']}, 'has members not elected: e'),
    ({'committee': None}, 'cannot be read (TypeError'),
    ({'committee': [['d']]}, 'cannot be read (TypeError'),
    ({'round': '7'}, 'it follows round 1'),
  ],
)
def test_a_break_between_rounds_is_found(tmp_path, changes, words):
  _write_two(tmp_path, **changes)
  first, second = verification.verify(tmp_path, _RULES)
  assert not first.faults
  assert words in '; '.join(second.faults)


@pytest.mark.parametrize(
  'changes',
  [
    {'round': '1'},
    {'vote': 'yes'},
    {'elected': 5},
    {'vote': {'is_accepted': 9}},
  ],
)
def test_a_round_after_one_of_another_form_has_a_verdict(tmp_path, changes):
  _write_two(tmp_path)
  path = tmp_path / 'audit' / 'log.jsonl'
  first, second = path.read_text().splitlines(keepends=True)
  path.write_text(json.dumps(json.loads(first) | changes) + '\n' + second)
  _, after = verification.verify(tmp_path, _RULES)
  assert 'the line before it' in after.faults[0]


def test_a_line_that_was_taken_out_or_changed_is_found(tmp_path):
  _write_two(tmp_path)
  path = tmp_path / 'audit' / 'log.jsonl'
  first, second = path.read_text().splitlines(keepends=True)
  path.write_text(second)
  (only,) = verification.verify(tmp_path, _RULES)
  assert 'the line before it' in only.faults[0]
  path.write_text(first.replace('"num_examples": 9', '"num_examples": 8'))
  with open(path, 'a') as file:
    file.write(second)
  _, after = verification.verify(tmp_path, _RULES)
  assert 'the line before it' in after.faults[0]


@pytest.mark.parametrize(
  ('changes', 'faults'),
  [
    ({}, ()),
    (
      {'before': 'x', 'after': 'x'},
      ('it does not start from the model that the round before ended with',),
    ),
    ({'round': 4}, ('it follows round 2',)),
    ({'committee': ['e']}, ('its committee has members not elected: e',)),
  ],
)
def test_a_round_that_lost_all_training_changes_nothing(
  tmp_path, changes, faults
):
  first = _entry()
  model = first['after']
  third = _second(
    **{'round': 3, 'before': model, 'after': model, 'vote': None, **changes}
  )
  log = audit_log.AuditLog(tmp_path)
  for entry in (first, {'round': 2}, third):
    log.append(entry, {})
  verdicts = verification.verify(tmp_path, _RULES)
  assert [verdict.faults for verdict in verdicts] == [(), (), faults]


@pytest.mark.parametrize(
  ('committee', 'faults'),
  [(('d',), ()), (('e',), ('its committee has members not elected: e',))],
)
def test_a_committee_whose_vote_was_rejected_stays(tmp_path, committee, faults):
  first = _entry()
  model = {'before': first['after'], 'after': first['after'], 'vote': None}
  log = audit_log.AuditLog(tmp_path)
  for entry in (
    first,
    _second(round=2, **model),
    _second(committee, round=3, **model),
  ):
    log.append(entry, {})
  verdicts = verification.verify(tmp_path, _RULES)
  assert [verdict.faults for verdict in verdicts] == [(), (), faults]
