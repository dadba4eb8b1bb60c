import ast
import time

import numpy as np

from pipelines.examples import cleaning
from pipelines.publishing import staging as staging_lib
from pipelines.sources import base
from pipelines.steps import handover, planning


def test_surveys_and_dead_letters_come_back_in_order(tmp_path):
  features = base.image_features((2,), 3)
  blocks = [
    cleaning.clean(
      base.Block('train', start, start + 2),
      [
        base.RawExample(np.array([start, 1]), 0, client='ann'),
        base.RawExample(None, 0),
      ],
      features,
    )
    for start in (0, 2)
  ]
  with staging_lib.open_staging(tmp_path) as staging:
    for number in (1, 0):  # In any order, and more than once.
      handover.write_survey(staging, number, *blocks[number])
      handover.write_survey(staging, number, *blocks[number])
    surveys, letters = handover.read_surveys(staging, 2)
  assert [letter.position for letter in letters] == [1, 3]
  for (sound, _), survey in zip(blocks, surveys, strict=True):
    for name in planning.Survey._fields:
      np.testing.assert_array_equal(getattr(survey, name), getattr(sound, name))


def test_each_block_gets_its_part_of_the_plan(tmp_path):
  plan = planning.Plan(
    client_ids=('a', 'b'),
    groups=('participating', 'unseen'),
    mixtures=None,
    roles=np.arange(5),
    owners=np.arange(10).reshape(2, 5),
  )
  with staging_lib.open_staging(tmp_path) as staging:
    handover.write_plan(staging, plan, [2, 0, 3])
    parts = [handover.read_plan(staging, number) for number in range(3)]
  assert [int(part.start) for part in parts] == [0, 2, 2]
  assert [part.roles.tolist() for part in parts] == [[0, 1], [], [2, 3, 4]]
  np.testing.assert_array_equal(parts[2].owners, [[2, 3, 4], [7, 8, 9]])
  assert {int(part.num_clients) for part in parts} == {2}


def test_threads_parse_headers_one_after_the_other(tmp_path, monkeypatch):
  # Two at once can fail in CPython 3.11.
  parse, at_once, most = ast.literal_eval, [], []

  def slow(text):
    at_once.append(text)
    most.append(len(at_once))
    time.sleep(0.002)
    at_once.pop()
    return parse(text)

  monkeypatch.setattr(ast, 'literal_eval', slow)
  block = base.Block('train', 0, 1), [base.RawExample(np.array([1, 1]), 0)]
  features = base.image_features((2,), 3)
  with staging_lib.open_staging(tmp_path) as staging:
    for number in range(4):
      handover.write_survey(staging, number, *cleaning.clean(*block, features))
    handover.read_surveys(staging, 4)
  assert len(most) > 4
  assert set(most) == {1}
