import json

import pytest

from configs.fed_soft import digits
from tests.testing import saved_run
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment, resolved_config


def test_config_is_resolved_and_hashed(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))
  resolved_config.write(config, tmp_path, {'seed': 1})
  written = json.loads((tmp_path / 'config.json').read_text())
  assert written['name'] == config.name
  assert written['config_hash'] == experiment.config_hash(config)
  assert written['config']['runtime']['tff']['max_concurrent_calls'] == -1
  assert [path.name for path in tmp_path.iterdir()] == ['config.json']


def test_the_config_that_was_written_is_read(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))
  resolved_config.write(config, tmp_path, {'seed': 1})
  read = resolved_config.read(tmp_path)
  assert config_lib.to_dict(read) == config_lib.to_dict(config)


def test_config_of_another_run_is_refused(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))
  run = saved_run.Run(tmp_path / 'checkpoints').train(1)
  resolved_config.write(config, tmp_path, run.checkpoints.run_identity)
  resolved_config.read(tmp_path)
  resolved_config.write(config, tmp_path, {'seed': 1})
  with pytest.raises(
    errors.DataError, match='config.json is of another run .*binaries.train'
  ):
    resolved_config.read(tmp_path)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  with pytest.raises(
    errors.DataError, match='config.json is missing. Name fol'
  ):
    resolved_config.read(tmp_path)


def test_provenance_of_each_training_of_a_run_is_kept(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))

  def train(revision, run_identity):
    made_by = {'revision': revision} if revision else None
    resolved_config.write(config, tmp_path, run_identity, made_by)
    content = json.loads((tmp_path / 'config.json').read_text())
    return [one['revision'] for one in content['provenance']]

  assert train('a', {'seed': 1}) == ['a']
  assert train('a', {'seed': 1}) == ['a']
  assert train('b', {'seed': 1}) == ['a', 'b']
  assert train('', {'seed': 1}) == ['a', 'b']
  assert train('b', {'seed': 2}) == ['b']
  (tmp_path / 'config.json').write_text('{')
  assert train('c', {'seed': 2}) == ['c']
