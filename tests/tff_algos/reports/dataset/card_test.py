"""The card as a whole: one page that needs no other file."""

import base64
import collections
import dataclasses
import math

import pytest

from tests.testing import fake_facts, pages
from tff_algos.data import schema
from tff_algos.reports.dataset import card
from tff_algos.reports.dataset import facts as facts_lib


@pytest.fixture(name='render')
def make_render(monkeypatch, tmp_path):
  def render(**options):
    facts = fake_facts.make(**options)
    monkeypatch.setattr(facts_lib, 'read', lambda path: facts)
    return card.render(tmp_path)

  return render


@pytest.mark.parametrize(
  ('options', 'num_pictures'),
  [
    ({'num_clients': 10}, 6),
    (
      {
        'num_sources': 12,
        'num_clients': 30,
        'source_names': tuple(f'{i:02d}{"name" * 12}' for i in range(12)),
      },
      6,
    ),
    *(
      pytest.param(options, num_pictures, marks=pytest.mark.verify)
      for options, num_pictures in (
        ({'num_clients': 20_000, 'size': 5}, 6),
        ({'num_classes': 0, 'x_shape': (7,)}, 6),
        (
          {
            'num_sources': 24,
            'num_clients': 60,
            'num_classes': 0,
            'x_shape': (2,),
          },
          5,
        ),
        ({'num_sources': 1, 'natural': True}, 4),
        (
          {
            'num_clients': 1,
            'num_sources': 1,
            'num_classes': 0,
            'x_shape': (2,),
          },
          3,
        ),
      )
    ),
  ],
)
def test_every_picture_is_whole_and_nothing_is_cut_off(
  render, options, num_pictures
):
  pictures = pages.Page(render(**options)).references
  assert len(pictures) == num_pictures
  for picture in pictures:
    kind, _, content = picture.partition(',')
    assert kind == 'data:image/png;base64'
    _, width = pages.check_picture(base64.b64decode(content))
    assert width == 1500


@pytest.mark.usefixtures('no_pixels')
def test_the_title_says_which_file_it_is(render):
  text = pages.Page(render(source_options={'train_file': 'loans.csv'})).text
  assert text.split()[:2] == ['invented:', 'loans.csv']
  assert 'Files read: 1' in text


@pytest.mark.usefixtures('no_pixels')
def test_the_page_needs_no_other_file(render):
  text = render()
  for reference in pages.Page(text).references:
    assert reference.startswith('data:image/png;base64,')
  for word in ('://', '@import', 'url(', '<script'):
    assert word not in text


@pytest.mark.usefixtures('no_pixels')
def test_the_page_says_what_it_was_made_from(render):
  text = render()
  assert card.signature('f' * 64) in text
  for checksum in 'abc':
    assert checksum * 64 in pages.Page(text).text


@pytest.mark.usefixtures('no_pixels')
def test_the_page_has_all_numbers(render):
  text, facts = pages.Page(render()).text, fake_facts.make()
  assert card.heading(facts) in text
  tables = (card.summary(facts), card.splits(facts), card.sources(facts))
  assert not [
    cell
    for table in tables
    for row in table
    for cell in row
    if cell not in text
  ]


def test_key_figures():
  facts = fake_facts.make(num_clients=3, num_sources=1, num_classes=3)
  facts.sizes['train'][:] = [1, 2, 9]
  facts.sources[:, 0] = [1, 2, 9]
  # Total variation of the pairs: 1/2, 2/3, 4/9; of the redrawn ones 0.778.
  facts.labels[:] = [[1, 0, 0], [1, 1, 0], [3, 2, 4]]
  facts.manifest['num_clients'].update(participating=1000, unseen=200)
  for number, counts in enumerate(facts.manifest['num_examples'].values()):
    counts.update(participating=1000 * 10**number, unseen=1)
  facts.manifest['counters'].update(raw_examples=2000, dead_letters=1300)
  facts.manifest['recipe']['partition'] = {'law': 'natural'}
  assert card.summary(facts) == [
    ('partition', 'natural'),
    ('seed', '3'),
    ('training examples per client', '1 to 9, median 2, mean 4.0'),
    ('classes per client', '1 to 3, median 2'),
    (
      'total variation between label distributions of two clients',
      'mean 0.537; IID clients of the same sizes 0.778',
    ),
    ('raw examples', '2,000 read, of which 1,300 malformed (dead letters)'),
  ]
  assert card.heading(facts) == (
    '111,003 examples of 1,200 clients (1,000 participating, 200 unseen), from '
    '1 source distribution, for classification into 3 classes; features '
    '4 x 4 x 1.'
  )
  facts.manifest['num_clients']['unlabelled'] = 30
  assert '1,230 clients (1,000 participating, 200 unseen, 30 unlabelled), ' in (
    card.heading(facts)
  )


def _total(n):
  return {
    'num_examples': 1000 * n,
    'x': {'mean': n + 0.1, 'std': n + 0.2, 'min': n + 0.3, 'max': n + 0.4},
    'label_counts': [1] * n,
  }


def _numbers(n):
  labels = f'{n} classes, entropy {math.log2(n):.2f} bits'
  return f'{n},000', f'{n}.1 ± {n}.2', f'{n}.3 to {n}.4', labels


def test_numbers_of_splits_and_sources():
  splits = [(g, s) for g in schema.GROUPS for s in schema.SPLITS]
  sources = [(f'source_{i}', k) for i in (0, 1) for k in ('source', 'held_out')]
  totals = collections.defaultdict(dict)
  for n, (one, other) in enumerate(splits, 2):
    totals[one][other] = _total(n)
  for n, (name, kind) in enumerate(sources, 20):
    totals[kind][name] = _total(n)
  facts = fake_facts.make()._replace(totals=totals)
  where = {'source': 'clients', 'held_out': 'held out'}
  assert card.splits(facts) == [
    (*key, *_numbers(n)) for n, key in enumerate(splits, 2)
  ]
  assert card.sources(facts) == [
    (name, where[kind], *_numbers(n))
    for n, (name, kind) in enumerate(sources, 20)
  ]
  totals['unseen']['test']['y'] = {'mean': 0.5, 'std': 0.25}
  assert card.splits(facts)[-1][-1] == '0.5 ± 0.25'


def test_clients_without_examples_are_counted():
  facts = fake_facts.make()
  facts.sizes['train'][3:5] = 0
  assert ('clients without training examples', '2') in card.summary(facts)


def test_planted_truth_is_told_and_cut():
  facts = fake_facts.make()
  assert card.planted(facts) == []
  facts.manifest['source_facts'] = {'thetas': [0.5] * 1000, 'scale': 3}
  (thetas, scale) = card.planted(facts)
  assert scale == ('source_facts.scale', '3')
  assert thetas[1].startswith('[0.5, 0.5') and len(thetas[1]) == 1001


def test_ids_of_tokens_have_no_mean():
  facts = fake_facts.make(x_shape=(5,))
  facts = facts._replace(
    schema=dataclasses.replace(facts.schema, x_dtype='int32')
  )
  for row in (*card.splits(facts), *card.sources(facts)):
    assert row[3] == '–'
  assert '±' in card.splits(fake_facts.make())[0][3]


def test_entropy_of_labels():
  assert card._entropy([4, 4, 0, 4, 4]) == '4 classes, entropy 2.00 bits'
  assert card._entropy([9, 0]) == '1 class, entropy 0.00 bits'


def test_the_page_escapes_what_it_is_told(render):
  attack = '<script>alert("x")<script>'
  text = render(source_names=(attack, '$b_{$'))
  assert '<script' not in text
  assert attack in pages.Page(text).text
