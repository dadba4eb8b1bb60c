import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import util

from pipelines import cleaning, extract, handover, planning, runner, splits
from pipelines import staging as staging_lib
from tests.testing import raw_data


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
      | extract.Blocks([block])
      | beam.ParDo(extract.SurveyBlock(config, staging))
    )
    util.assert_that(surveyed, util.equal_to([0]))
  (survey,), letters = handover.read_surveys(staging, 1)
  assert survey.key.shape == (3, 16)
  assert survey.client.tolist() == ['person_0', 'person_1', 'person_2']
  assert letters == [
    cleaning.DeadLetter('train', 3, "'a' is '?', not a number")
  ]


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
  pieces = {}
  for key, piece in step.process((1, block)):
    pieces.setdefault(key, []).append(piece)
  assert pieces.keys() == {
    (kind, i) for kind in ('clients', 'held_out') for i in (0, 1)
  }
  upright, rotated = pieces['clients', 0]
  assert (upright.client.tolist(), rotated.client.tolist()) == ([0], [3])
  assert upright.position.tolist() == rotated.position.tolist() == [100]
  np.testing.assert_array_equal(
    rotated.stored.x[0], np.rot90(upright.stored.x[0])
  )
  # One raw example has one id, whatever shows it.
  np.testing.assert_array_equal(
    rotated.stored.example_id, upright.stored.example_id
  )
  upright, rotated = pieces['clients', 1]
  assert (upright.client.tolist(), rotated.client.tolist()) == ([7], [4])
  assert (upright.split.tolist(), rotated.split.tolist()) == ([0], [1])
  for source_index in (0, 1):
    (held_out,) = pieces['held_out', source_index]
    assert held_out.position.tolist() == [102]
    assert held_out.stored.source.tolist() == [source_index]
