"""The card as a whole: one page that needs no other file."""

import base64
import dataclasses

import pytest

from tests.testing import fake_facts, pages
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
    ({'num_clients': 20_000, 'size': 5}, 6),
    ({'num_classes': 0, 'x_shape': (7,)}, 6),
    (
      {
        'num_sources': 12,
        'num_clients': 30,
        'source_names': tuple(f'{i:02d}{"name" * 12}' for i in range(12)),
      },
      6,
    ),
    (
      {'num_sources': 24, 'num_clients': 60, 'num_classes': 0, 'x_shape': (2,)},
      5,
    ),
    ({'num_sources': 1, 'natural': True}, 4),
    (
      {'num_clients': 1, 'num_sources': 1, 'num_classes': 0, 'x_shape': (2,)},
      3,
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


@pytest.mark.usefixtures('no_pixels')  # Of pictures `page_test` shows it.
def test_the_same_facts_give_the_same_page(render):
  assert render() == render()


@pytest.mark.usefixtures('no_pixels')
def test_the_page_says_what_it_was_made_from(render):
  text = render()
  assert card.signature('f' * 64) in text
  for checksum in 'abc':
    assert checksum * 64 in pages.Page(text).text


@pytest.mark.usefixtures('no_pixels')
def test_numbers(render):
  text = pages.Page(render()).text
  for part in (
    '480 examples of 12 clients (12 participating, 0 unseen)',
    '2 source distributions',
    'classification into 5 classes; features 4 x 4 x 1',
    '40 to 40, median 40, mean 40.0',
    '480 read, of which 0 malformed',
  ):
    assert part in text


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
  schema = dataclasses.replace(facts.schema, x_dtype='int32')
  facts = facts._replace(schema=schema)
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
