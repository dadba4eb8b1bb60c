"""Warnings: only what is wrong, with what to do."""

import json

import numpy as np
import pytest

from tests.testing import csv_files, fake_workdir
from tff_algos.core import sealed_json
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import warning_texts


def _write_memberships(workdir, *rows):
  lines = ['group,membership_0,membership_1,membership_2']
  lines += [f'participating,{row}' for row in rows] + ['unseen,1,0,0']
  path = workdir / 'evaluation' / 'clients.csv'
  path.write_text('\n'.join(lines) + '\n')


@pytest.fixture
def workdir(tmp_path):
  fake_workdir.write(
    tmp_path, num_clusters=3, num_rounds=2, source_names=('a', 'b', 'c')
  )
  return tmp_path


def _set_rounds(workdir, text):
  (workdir / 'metrics.csv').write_text(text)


def _sentences(workdir):
  return warning_texts.sentences(run_lib.read(workdir))


def test_a_run_as_it_should_be_has_none(workdir):
  _set_rounds(workdir, 'round,clients/invalid\n0,\n1,0\n')
  _write_memberships(workdir, '0.6,0.2,0.2', '0,1,0', '0.1,0.1,0.8')
  assert _sentences(workdir) == []


def test_what_was_left_out_is_said(workdir):
  _set_rounds(workdir, 'round,clients/invalid\n0,\n1,2\n2,1\n')
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  assert _sentences(workdir) == [
    '3 client results were not finite and got weight zero.'
  ]


def test_rounds_in_which_nothing_was_trained(workdir):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  table = 'round,train/loss,clients/invalid\n0,,\n1,0.5,0\n2,nan,10\n3,nan,10\n'
  _set_rounds(workdir, table)
  (text,) = _sentences(workdir)
  assert text.startswith(
    '20 client results were not finite and got weight zero. Since round 1 no '
    'client has had a finite one, and nothing was trained. Smaller learning'
  )
  _set_rounds(workdir, table.replace('1,0.5,0', '1,nan,10'))
  (text,) = _sentences(workdir)
  assert 'Since round 0 no client has had a finite one' in text
  continued = 'round,train/loss,clients/invalid\n100,,\n101,nan,10\n'
  _set_rounds(workdir, continued)
  (text,) = _sentences(workdir)
  assert 'Since round 100 no client has had a finite one' in text
  # Without a loss at the end for another reason: all clients dropped out.
  _set_rounds(workdir, table.replace('3,nan,10', '3,nan,0'))
  assert _sentences(workdir) == [
    '10 client results were not finite and got weight zero.'
  ]


def test_rounds_without_agreement(workdir):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  _set_rounds(workdir, 'round,adopt/is_accepted\n0,\n1,1\n2,0\n3,1\n')
  (text,) = _sentences(workdir)
  assert text.startswith(
    'In 1 of 3 rounds the committee accepted no proposal. '
  )
  _set_rounds(workdir, 'round,adopt/is_accepted\n0,\n1,1\n2,0\n3,0\n')
  (text,) = _sentences(workdir)
  assert text.startswith(
    'In 2 of 3 rounds the committee accepted no proposal. The model and the '
    'committee are unchanged since round 1, '
  )
  assert 'malicious_fraction' in text
  _set_rounds(workdir, 'round,adopt/is_accepted\n0,\n1,0\n')
  (text,) = _sentences(workdir)
  assert 'unchanged since the start' in text
  _set_rounds(workdir, 'round,adopt/is_accepted\n0,\n1,1\n')
  assert _sentences(workdir) == []


def test_clusters_without_clients(workdir):
  _set_rounds(workdir, 'round\n0\n')
  _write_memberships(workdir, '0.4,0.5,0.1', '0.1,0.7,0.2')
  (text,) = _sentences(workdir)
  assert text.startswith(
    'All 2 clients have their largest membership in cluster 1, none in any '
  )
  assert 'algorithm.initialization' in text
  _write_memberships(workdir, '0.4,0.5,0.1', '0.8,0.1,0.1')
  (text,) = _sentences(workdir)
  assert text.startswith('No client has its largest membership in cluster 2. ')
  assert 'another seed' in text


def test_clients_that_are_undecided_are_nobodys_fault(workdir):
  _set_rounds(workdir, 'round\n0\n')
  _write_memberships(workdir, '0.5,0.5,0.5', '0.5,0.5,0.5')
  assert _sentences(workdir) == []
  _write_memberships(workdir, '0.5,0.5,0.5', '0.8,0.1,0.1')
  (text,) = _sentences(workdir)
  assert text.startswith('No client has its largest membership in cluster 1 or')


@pytest.mark.parametrize(
  ('model', 'count', 'start'),
  [
    ('personalized', 20, '20 clients have no finite test score (personalized '),
    ('cluster', 1, '1 client has no finite test score (own cluster)'),
    ('cluster', 0, None),
  ],
)
def test_clients_that_means_leave_out_are_counted(workdir, model, count, start):
  _set_rounds(workdir, 'round,a/accuracy\n0,1\n')
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  name = f'participating/test/{model}/accuracy_num_nan'
  fake_workdir.change_summary(workdir, {name: count})
  texts = _sentences(workdir)
  assert len(texts) == bool(start)
  assert all(text.startswith(start) for text in texts)
  assert all('after round 2;' in text for text in texts)


def _set_regrouping(workdir, moved, memory, ari='', start=0):
  columns = 'round,train/moved_clients,train/upload_memory,participating/'
  rows = [
    f'{number},{share},{memory},{ari}'
    for number, share in enumerate(moved, start=start + 1)
  ]
  _set_rounds(
    workdir, '\n'.join([f'{columns}membership/ari', f'{start},,,', *rows, ''])
  )


@pytest.mark.parametrize(
  ('moved', 'since'),
  [
    ([0.5, 0.1, *[0] * 8], 'since round 2.'),
    ([0] * 5, 'at all.'),
  ],
)
@pytest.mark.parametrize(('memory', 'share'), [(0.954, '95 %'), (0.61, '61 %')])
def test_a_partition_that_could_not_have_healed(
  workdir, moved, since, memory, share
):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  _set_regrouping(workdir, moved, memory, 0.2)
  (text,) = _sentences(workdir)
  assert text.startswith(f'No client has changed its cluster {since} ')
  assert f'{share} of an upload' in text
  assert 'a wrong partition may persist.' in text
  assert 'num_local_steps' in text


def test_rounds_of_a_continued_run_are_its_own(workdir):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  _set_regrouping(workdir, [0.5, *[0] * 9], 0.954, start=300)
  (text,) = _sentences(workdir)
  assert text.startswith('No client has changed its cluster since round 301. ')
  _set_regrouping(workdir, [0] * 9, 0.954, start=300)
  (text,) = _sentences(workdir)
  assert text.startswith('No client has changed its cluster at all. ')


@pytest.mark.parametrize(
  ('moved', 'memory', 'ari'),
  [
    ([0.5, 0.1, *[0] * 7], 0.954, ''),  # Settled too late to say so.
    ([0.5, *[0] * 9], 0.5, ''),  # Clients could have moved.
    ([0.5, *[0] * 9], 0.954, 1.0),  # The clusters are known to be right.
    ([0.5, *[0] * 8, 0.1], 0.954, ''),
  ],
)
def test_a_partition_that_is_not_to_be_warned_of(workdir, moved, memory, ari):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  _set_regrouping(workdir, moved, memory, ari)
  assert _sentences(workdir) == []


def test_without_validation_examples_there_is_no_best_round(tmp_path):
  for count, best, is_said in (
    *((0, {}, True), (0, {'round': 1}, False), (3, {}, False)),
  ):
    fake_workdir.write(tmp_path, num_rounds=2)
    path = tmp_path / 'evaluation' / 'clients.csv'
    counts = {'participating': count, 'unseen': 9}
    rows = csv_files.read(path)
    csv_files.write(
      path,
      [
        {**row, 'num_validation_examples': counts[row['group']]} for row in rows
      ],
    )
    fake_workdir.change_summary(tmp_path, best_by_validation=best)
    said = [one for one in _sentences(tmp_path) if 'no best round' in one]
    assert len(said) == is_said


@pytest.mark.parametrize(
  ('scores', 'is_warned'),
  [([[0.9, 0.7, 0.8], [0.7] * 3, [0.6] * 3], True), (np.eye(3), False)],
)
def test_one_model_that_is_best_everywhere(workdir, scores, is_warned):
  _write_memberships(workdir, '1,0,0', '0,1,0', '0,0,1')
  _set_rounds(workdir, 'round,a/accuracy\n0,1\n')
  fake_workdir.score_held_out(workdir, scores)
  found = _sentences(workdir)
  assert len(found) == is_warned
  if is_warned:
    assert found[0].startswith(
      'The model of cluster 0 is the best on all 3 source distributions'
    )


def test_who_attacks_is_said(workdir):
  _set_rounds(workdir, 'round\n0\n')
  path = workdir / 'evaluation' / 'clients.csv'
  rows = [f'c{i:02d},participating,{int(i != 2)}' for i in range(30)]
  head = 'client_id,group,is_attacker'
  path.write_text('\n'.join([head, *rows[:4], 'u,unseen,']) + '\n')
  config = workdir / 'config.json'
  content = json.loads(config.read_text())
  content['config']['attack'] = {'name': 'alie', 'space': 'update'}
  sealed_json.write(config, content)
  (text,) = _sentences(workdir)
  assert text.startswith(
    "3 Byzantine clients (attack 'alie' on the update): c00, c01, c03. "
  )
  path.write_text('\n'.join([head, *rows]) + '\n')
  (text,) = _sentences(workdir)
  assert text.startswith('29 Byzantine clients ')
  assert 'c20 and 9 more.' in text
