import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.testing import util

from pipelines.engines import failures, runner
from pipelines.examples import cleaning, splits
from pipelines.publishing import staging as staging_lib
from pipelines.sources import registry
from pipelines.steps import extract, handover, pieces, planning
from tests.testing import raw_data
from tff_algos.core import errors

_IID = {'law': 'iid', 'num_clients': 2}


@pytest.fixture
def staging(tmp_path):
  """A place to work in."""
  with staging_lib.open_staging(tmp_path / 'dataset') as staging:
    yield staging


def test_survey_notes_sound_and_dead(tmp_path, staging):
  raw_data.write_csv(tmp_path, 3, ('?,1,no,ann',))
  config = raw_data.csv_config(tmp_path)
  (block,) = extract.create_source(config).blocks()
  with runner.run_pipeline([]) as pipeline:
    surveyed = (
      pipeline
      | runner.spread([(0, block)])
      | beam.ParDo(extract.SurveyBlock(config, staging))
    )
    util.assert_that(surveyed, util.equal_to([0]))
  (survey,), letters = handover.read_surveys(staging, 1)
  assert survey.key.shape == (3, 16)
  assert survey.client.tolist() == ['person_0', 'person_1', 'person_2']
  assert survey.y.tolist() == [0, 1, 0]
  letter = cleaning.DeadLetter(
    'train',
    3,
    reason='not a finite number',
    column='a',
    value="'?'",
    client_id='ann',
    file='table.csv',
    line=5,
    row={'a': '?', 'b': '1', 'y': 'no', 'who': 'ann'},
  )
  assert letters == [letter]


def test_workers_need_no_registry(tmp_path, staging, monkeypatch):
  """They have not loaded the plug-in that registered a source."""
  raw_data.write_csv(tmp_path, 3)
  config = raw_data.csv_config(tmp_path)
  (block,) = extract.create_source(config).blocks()
  sent = pickler.dumps(extract.SurveyBlock(config, staging))
  # Not delitem: it puts the name back at the end of the registry.
  monkeypatch.setattr(registry, 'SOURCES', {})
  assert list(pickler.loads(sent).process((0, block))) == [0]


def test_redacted_dead_letter_has_no_content(tmp_path, staging):
  raw_data.write_csv(tmp_path, 3, ('secret,1,no,ann',))
  config = raw_data.csv_config(tmp_path, redact_dead_letters=True)
  (block,) = extract.create_source(config).blocks()
  list(extract.SurveyBlock(config, staging).process((0, block)))
  _, (letter,) = handover.read_surveys(staging, 1)
  assert (letter.file, letter.line, letter.column) == ('table.csv', 5, 'a')
  assert 'secret' not in str(letter) and 'ann' not in str(letter)


@pytest.mark.parametrize(
  ('overrides', 'expected'),
  [
    ({}, (True, False, False, False)),
    ({'partition': {'law': 'natural'}}, (True, True, False, False)),
    ({'splits': {'split_by': 'group'}}, (True, False, True, False)),
    ({'splits': {'split_by': 'time'}}, (True, False, False, True)),
    ({'splits': {'split_by': 'client_time'}}, (True, False, False, True)),
  ],
)
def test_partition_and_splits_need_columns(tmp_path, overrides, expected):
  config = raw_data.csv_config(tmp_path, **overrides)
  assert extract.what_is_needed(config) == expected


def test_pieces_show_the_plan(staging):
  config = raw_data.digits_config()  # 8 clients in 2 shards, 2 distributions
  source = extract.create_source(config)
  block = source.blocks()[0]._replace(stop=4)
  plan = planning.Plan(
    client_ids=tuple('abcdefgh'),
    groups=('participating',) * 8,
    mixtures=None,
    roles=np.array([0] * 100 + [0, 1, splits.HELD_OUT, 0]),
    owners=np.array([[0] * 100 + [0, -1, -1, 7], [0] * 100 + [3, 4, -1, -1]]),
  )
  handover.write_plan(staging, plan, [100, 4])
  step = extract.ExtractPieces(config, staging)
  found = {
    key: pieces.load(staging, [run]) for key, run in step.process((1, block))
  }
  assert found.keys() == {
    (kind, i) for kind in ('clients', 'held_out') for i in (0, 1)
  }
  first = found['clients', 0]  # Upright, then rotated.
  assert first.stored.source.tolist() == [0, 1]
  assert first.client.tolist() == [0, 3]
  assert first.position.tolist() == [100, 100]
  upright, rotated = first.stored.x
  np.testing.assert_array_equal(rotated, np.rot90(upright))
  # One raw example has one id, whatever shows it.
  np.testing.assert_array_equal(*first.stored.example_id)
  second = found['clients', 1]
  assert second.client.tolist() == [7, 4]
  assert second.split.tolist() == [0, 1]
  for source_index in (0, 1):
    held_out = found['held_out', source_index]
    assert held_out.position.tolist() == [102]
    assert held_out.stored.source.tolist() == [source_index]


def test_a_native_distribution_holds_out_its_own_examples_alone(staging):
  config = raw_data.digits_config(
    source={
      'name': 'linear_regression',
      'options': {'num_examples_per_source': 4, 'num_held_out_per_source': 2},
    },
    distributions={'kind': 'native'},
  )
  source = extract.create_source(config)
  step = extract.ExtractPieces(config, staging)
  blocks = source.blocks()
  sound = [step._clean(block)[0] for block in blocks]
  sizes = [len(block.y) for block in sound]
  plan = planning.Plan(
    client_ids=tuple('abcdefgh'),
    groups=('participating',) * 8,
    mixtures=None,
    roles=np.full(sum(sizes), splits.HELD_OUT),
    owners=np.full((2, sum(sizes)), planning.NOBODY),
  )
  handover.write_plan(staging, plan, sizes)
  for number, (block, expected) in enumerate(zip(blocks, sound, strict=True)):
    found = dict(step._pieces(number, block))
    for native in (0, 1):
      rows = expected.native_source == native
      held_out = found['held_out', native]
      np.testing.assert_array_equal(held_out.stored.x, expected.x[rows])
  assert {0, 1} == {n for block in sound for n in block.native_source.tolist()}


def test_held_out_example_that_a_client_owns_is_among_its_tests(staging):
  config = raw_data.digits_config(distributions={}, partition=_IID)
  source = extract.create_source(config)
  block = source.blocks()[0]._replace(stop=3)
  plan = planning.Plan(
    client_ids=('a', 'b'),
    groups=('participating',) * 2,
    mixtures=None,
    roles=np.array([0, splits.HELD_OUT, splits.HELD_OUT]),
    owners=np.array([[0, 0, -1]]),
  )
  handover.write_plan(staging, plan, [3])
  step = extract.ExtractPieces(config, staging)
  found = dict(step._pieces(0, block))
  first = found['clients', 0]
  assert first.client.tolist() == [0, 0]
  assert first.split.tolist() == [0, splits.TEST]
  held_out = found['held_out', 0]
  assert held_out.position.tolist() == [1, 2]


@pytest.mark.parametrize('step', [extract.SurveyBlock, extract.ExtractPieces])
def test_damaged_source_passes_through_any_engine(tmp_path, staging, step):
  raw_data.write_csv(tmp_path, 3)
  config = raw_data.csv_config(tmp_path)
  (block,) = extract.create_source(config).blocks()
  (tmp_path / 'table.csv').write_bytes(b'a,b,y,who\n\xff\n')
  with pytest.raises(failures.StepError) as caught:
    list(step(config, staging).process((0, block)))
  found = failures.find(RuntimeError(f'as text: {caught.value} and more'))
  assert isinstance(found, errors.DataError)
  assert 'is not UTF-8 text' in str(found)
