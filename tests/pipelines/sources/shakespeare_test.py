import json
import os
import pathlib

import numpy as np
import pytest

from pipelines import build_dataset, options
from pipelines.sources import base, registry, shakespeare
from tests.testing import raw_sources
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import integrity

_DATA = pathlib.Path(os.environ.get('SHAKESPEARE_DIR', '../shared/data'))


def _source(folder, **more):
  return registry.create(
    'shakespeare', raw_sources.write_shakespeare(folder) | more, 0
  )


def _spell(source, example):
  """Returns the characters seen, and the one that follows."""
  alphabet = source.facts()['alphabet']
  return ''.join(alphabet[i] for i in example.x), alphabet[example.y]


def test_alphabet_is_that_of_the_paper():
  """CMFL: 80 symbols, 80 characters seen."""
  assert len(shakespeare.ALPHABET) == 80
  features = registry.create(
    'shakespeare', {'folder': 'x', 'file': 'y'}, 0
  ).features()
  assert (features.x_dtype, features.x_shape) == ('int32', (80,))
  assert features.num_classes == 80


def test_windows_of_a_role(tmp_path):
  source = _source(tmp_path)
  examples = [e for e in raw_sources.read(source) if e.client == 'mac/Macbeth']
  text = 'Is this a dagger\nwhich I see?\nI have thee not-and yet...'
  expected = [(text[i : i + 8], text[i + 8]) for i in range(len(text) - 8)]
  assert [_spell(source, e) for e in examples] == expected
  # A role with too short a text has no window.
  assert {e.client for e in raw_sources.read(source)} == {
    'mac/Macbeth',
    'ham/Hamlet',
  }


def test_stride(tmp_path):
  source = _source(tmp_path, stride=9)
  examples = [e for e in raw_sources.read(source) if e.client == 'mac/Macbeth']
  pieces = [''.join(_spell(source, e)) for e in examples]
  text = 'Is this a dagger\nwhich I see?\nI have thee not-and yet...'
  assert ''.join(pieces) == text[: 9 * (len(text) // 9)]


@pytest.mark.parametrize(
  ('exact', 'plain'),
  [
    ('“Ay,” quoth he—‘no’…', '"Ay," quoth he-\'no\'...'),
    (
      'Æneas, thy cœur: garçon, fiancé, Là!',
      'AEneas, thy coeur: garcon, fiance, La!',
    ),
  ],
)
def test_plain_spelling(exact, plain):
  assert shakespeare.plain_spelling(exact) == plain


def test_strange_characters_are_malformed(tmp_path):
  source = _source(tmp_path, spelling='exact')
  problems = {e.problem for e in raw_sources.read(source)}
  reason = 'a character is not in the alphabet'
  assert {(reason, None, "'—'"), None} <= problems


def test_end_of_each_role_as_test_split(tmp_path):
  source = _source(tmp_path, test_fraction=0.5)
  examples = [e for e in raw_sources.read(source) if e.client == 'mac/Macbeth']
  text = 'Is this a dagger\nwhich I see?\nI have thee not-and yet...'
  halves = text[:28], text[28:]
  for is_test in (False, True):
    shown = [
      ''.join(_spell(source, e)) for e in examples if e.is_test == is_test
    ]
    assert len(shown) == len(halves[is_test]) - 8
    assert all(window in halves[is_test] for window in shown)
  assert source.has_test_split()


def test_windows_have_their_position_as_time(tmp_path):
  examples = raw_sources.read(_source(tmp_path, test_fraction=0.5, stride=3))
  role = [e for e in examples if e.client == 'mac/Macbeth']
  times = {is_test: [] for is_test in (False, True)}
  for example in role:
    times[example.is_test].append(example.time)
  assert times[False] == [*range(0, 20, 3)]
  assert times[True] == [*range(28, 28 + 21, 3)]
  assert {e.group for e in role} == {'mac/Macbeth'}


@pytest.mark.parametrize(('gap', 'overlap'), [(8.0, False), (7.0, True)])
def test_gap_of_a_window_between_splits_by_time(tmp_path, gap, overlap):
  """No character of a test example, or its label, is in a training example."""
  raw = tmp_path / 'raw'
  raw.mkdir()
  config = config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {
        'name': 'shakespeare',
        'options': raw_sources.write_shakespeare(raw),
      },
      'partition': {'law': 'natural'},
      'splits': {
        **{'split_by': 'client_time', 'time_gap': gap},
        **{'test_ratio': 1.0, 'held_out_fraction': 0.0},
      },
    },
    'dataset',
  )
  build_dataset.build(config, tmp_path / 'dataset')
  text = 'Is this a dagger\nwhich I see?\nI have thee not-and yet...'
  ids = np.array([shakespeare.ALPHABET.index(char) for char in text])
  windows = np.lib.stride_tricks.sliding_window_view(ids, 9)
  seen = {}
  with dataset_lib.FederatedDataset.open_folder(
    integrity.find_current(tmp_path / 'dataset')
  ) as dataset:
    for split in ('train', 'test'):
      examples = dataset.examples('mac/Macbeth', split)
      rows = np.concatenate([examples.x, examples.y[:, None]], axis=1)
      places = (rows[:, None] == windows).all(axis=2).argmax(axis=1)
      seen[split] = {*(places[:, None] + np.arange(9)).ravel().tolist()}
  assert len(seen['train']) > 9 and len(seen['test']) > 9
  assert bool(seen['train'] & seen['test']) == overlap


def test_script(tmp_path):
  (tmp_path / 'play.txt').write_text(
    'First Citizen:\nBefore: we\ngo\n \t\nAll:\n\nFirst Citizen:\nNow!\n'
  )
  source = registry.create(
    'shakespeare',
    {
      'folder': str(tmp_path),
      'file': 'play.txt',
      'form': 'script',
      'window': 2,
    },
    0,
  )
  examples = raw_sources.read(source)
  assert {e.client for e in examples} == {'First Citizen'}
  assert _spell(source, examples[0]) == ('Be', 'f')
  assert _spell(source, examples[-1]) == ('ow', '!')
  assert len(examples) == len('Before: we\ngo\nNow!') - 2


@pytest.mark.parametrize(
  ('form', 'text', 'problem'),
  [
    (
      'jsonl',
      '{"play": 1, "role": "a", "text": ""}',
      'line 1 .*no JSON object',
    ),
    ('jsonl', '[]', 'line 1 .*no JSON object'),
    ('jsonl', '[' * 100_000, 'line 1 .*no JSON object'),
    ('jsonl', '{"play": "a"', 'line 1 .*no JSON object'),
    ('script', 'Enter Hamlet', 'does not begin with a line "ROLE:"'),
  ],
  ids=['types', 'list', 'deep', 'torn', 'script'],
)
def test_file_of_another_form(tmp_path, form, text, problem):
  source = _source(tmp_path, form=form)
  (tmp_path / 'speeches.jsonl').write_text(text)
  with pytest.raises(errors.DataError, match=problem):
    source.blocks()


def test_texts_may_have_other_separators_of_lines(tmp_path):
  path = tmp_path / 'speeches.jsonl'
  speech = {'play': 'a', 'role': 'b', 'text': 'one\u2028two\x85three'}
  text = json.dumps(speech, ensure_ascii=False)
  found = shakespeare._parse_jsonl(f'{text}\r\n{text}\n', path)
  assert len([*found]) == 2


def test_text_that_is_not_utf8(tmp_path):
  source = _source(tmp_path)
  (tmp_path / 'speeches.jsonl').write_bytes(b'caf\xe9')
  with pytest.raises(errors.DataError, match='not UTF-8 text'):
    source.blocks()


@pytest.mark.parametrize(
  'more',
  [
    {'form': 'xml'},
    {'window': 0},
    {'stride': 0},
    {'alphabet': 'aa'},
    {'alphabet': 'a'},
    {'spelling': 'modern'},
    {'test_fraction': 1.0},
  ],
)
def test_bad_options(more):
  with pytest.raises(errors.ConfigError, match=next(iter(more))):
    registry.create('shakespeare', {'folder': 'x', 'file': 'y'} | more, 0)


def _real(folder, **options):
  if not (_DATA / folder).is_dir():
    pytest.skip(f'no {folder} at {_DATA}; set SHAKESPEARE_DIR')
  options['folder'] = str(_DATA / folder)
  return registry.create('shakespeare', options, 0)


def test_real_plays_by_role():
  """CMFL, on all 37 plays; the counts are of the file itself.

  Table II has 3,616 windows a role on average, and a standard deviation of
  6,808, over 143 roles with a share of the text that LEAF draws; all roles
  with a window here have 3,415 and 6,010.
  """
  source = _real('shakespeare_roles', file='speeches.jsonl')
  blocks = source.blocks()
  total = sum(block.stop - block.start for block in blocks)
  assert total == 4_193_998
  facts = source.facts()
  first = next(source.read(base.Block('train', 0, 1)))
  seen, following = _spell(source, first)
  assert first.client == 'a-midsummer-nights-dream/Theseus_MND'
  assert seen == (
    'Now, fair Hippolyta, our nuptial hour\n'
    'Draws on apace. Four happy days bring in\nA'
  )
  assert (following, len(facts['alphabet'])) == ('n', 80)
  sizes = np.array([n for n in source._num_windows('train') if n])
  assert len(sizes) == 1228
  np.testing.assert_allclose(
    [sizes.mean(), sizes.std()], [3415.3, 6009.6], atol=0.1
  )
  for block in blocks[:: len(blocks) // 5]:
    assert all(e.problem is None for e in source.read(block))


def test_real_script_of_tiny_shakespeare():
  source = _real('tiny_shakespeare', file='input.txt', form='script')
  first = next(source.read(base.Block('train', 0, 1)))
  seen, _ = _spell(source, first)
  assert first.client == 'First Citizen'
  assert seen.startswith('Before we proceed any further, hear me speak.')
  roles = source._roles()
  assert sum(text.count('$') for text in roles.values()) == 1
  assert len(roles) == 309
