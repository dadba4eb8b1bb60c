"""Files of ranges: what is read, what is refused."""

import json

import pytest

from configs.fed_soft import digits
from tff_algos.core import errors
from tff_algos.experiments.sweeps import ranges

_CONFIG = digits.get_config().to_dict()


def _read(tmp_path, content):
  path = tmp_path / 'ranges.json'
  text = content if isinstance(content, str) else json.dumps(content)
  path.write_text(text)
  return ranges.read(str(path), _CONFIG)


def test_intervals_and_choices_in_the_types_of_the_config(tmp_path):
  found = _read(
    tmp_path,
    {
      'algorithm.proximal_weight': {'low': 1, 'high': 10, 'log': True},
      'algorithm.num_clusters': {'low': 2, 'high': 6},
      'model.hidden_sizes': [[64], [32, 32]],
    },
  )
  assert list(found.values()) == [
    ranges.Interval(1.0, 10.0, True),
    ranges.Interval(2, 6),
    ranges.Choices(([64], [32, 32])),
  ]
  assert type(found['algorithm.proximal_weight'].low) is float
  assert type(found['algorithm.num_clusters'].low) is int
  assert found['algorithm.num_clusters'].ends == (2, 6)


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    ('{', 'ranges.json is no JSON: '),
    (
      '{"algorithm.num_clusters": [2, 3], "algorithm.num_clusters": [2, 4]}',
      '--ranges: algorithm.num_clusters is given twice',
    ),
    (
      '{"algorithm.num_clusters": {"low": 2, "high": 3, "high": 4}}',
      '--ranges: high is given twice',
    ),
    ([], 'must have an object of config keys'),
    ({}, 'must have an object of config keys'),
    (
      {'algorithm.proximal_wait': [1, 2]},
      "no key 'proximal_wait'; did you mean 'proximal_weight'",
    ),
    ({'seed': [1, 2]}, 'range of seed: --num_seeds sets the seeds'),
    ({'dataset.seed': [1, 2]}, '--num_seeds sets the seeds'),
    ({'algorithm.num_clusters': [2, 2]}, 'two or more different choices'),
    ({'algorithm.num_clusters': [2]}, 'two or more different choices'),
    ({'algorithm.num_clusters': 2}, 'a list of choices, or an object'),
    ({'algorithm.num_clusters': {'low': 2}}, 'a list of choices, or an object'),
    (
      {'algorithm.num_clusters': {'low': 2, 'high': 3, 'logg': True}},
      "no key 'logg'; did you mean 'log'",
    ),
    (
      {'algorithm.num_clusters': {'low': 2, 'high': '3'}},
      "must be finite numbers, got 2 and '3'",
    ),
    *(
      (
        {'algorithm.proximal_weight': {'low': 0, 'high': high}},
        'finite numbers',
      )
      for high in (10**400, float('inf'), float('nan'))
    ),
    (
      {'algorithm.local_training': [1, 2]},
      'config.algorithm.local_training is a section; name one of its keys: ',
    ),
    (
      {'algorithm.num_clusters': {'low': 2.0, 'high': 3.5}},
      'must be integers, as config.algorithm.num_clusters is 2; got 2.0',
    ),
    (
      {'training.num_rounds': {'low': 2, 'high': 9}},
      'training.num_rounds: trials are compared round by round',
    ),
    (
      {'algorithm.num_clusters': {'low': 3, 'high': 3}},
      'low must be below high, got 3 and 3',
    ),
    (
      {'algorithm.proximal_weight': {'low': 0, 'high': 3, 'log': True}},
      'low must be below high, above 0 for log, got 0 and 3',
    ),
    (
      {'algorithm.proximal_weight': {'low': 1, 'high': 3, 'log': 1}},
      'log must be true or false, got 1',
    ),
  ],
)
def test_a_wrong_file_is_one_error(tmp_path, content, words):
  with pytest.raises(errors.ConfigError, match=words):
    _read(tmp_path, content)


def test_a_missing_file_is_named():
  with pytest.raises(
    errors.ConfigError, match='--ranges=no.json cannot be read: No such file'
  ):
    ranges.read('no.json', _CONFIG)
