import numpy as np
import pytest

from binaries import audit, train
from configs.fed_soft import digits
from tests.tff_algos.experiments import auditing_test
from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.core import errors
from tff_algos.experiments import experiment

dataset = auditing_test.dataset


def _trained(dataset, folder, change=lambda values: None, **algorithm):
  values = auditing_test.make_config(**algorithm)
  change(values)
  config = experiment.parse(values)
  (folder / 'dataset').symlink_to(dataset)
  train.train(config, folder)
  return config


def _attack(values):
  values.attack.update({'name': 'sign_flip', 'fraction': 0.25})
  values.training.dropout_rate = 0.3


def _collude(values):
  values.attack.update({'name': 'ipm', 'fraction': 0.25})
  values.algorithm.consensus.update(
    {'malicious_fraction': 0.9, 'behaviour': 'silent', 'max_views': 1}
  )


def _fall(values):
  values.lr_schedule = {
    'after_rounds': (2,),
    'factor': 0.1,
    'rates': ('server_learning_rate',),
  }


@pytest.mark.parametrize(
  ('change', 'algorithm'),
  [
    (_attack, {'upload': 'update', 'server_learning_rate': 0.7}),
    (_collude, {}),
    (_fall, {'upload': 'update'}),
  ],
)
def test_honest_logs_verify(dataset, tmp_path, change, algorithm):
  config = _trained(dataset, tmp_path, change, **algorithm)
  verdicts = audit.audit(config, tmp_path)
  assert [one.round_num for one in verdicts] == [1, 2, 3, 4]
  assert [one.faults for one in verdicts] == [()] * 4
  assert 'All 4 rounds verify' in audit.summarize(verdicts, 'abc')


@pytest.mark.slow
def test_the_program_names_the_round_that_does_not_verify(
  dataset, tmp_path, launcher
):
  """One weight of one upload of round 3 is another, digest and all."""
  _trained(dataset, tmp_path)
  path = tmp_path / 'audit' / 'round_000003.npz'
  arrays = audit_log.read_arrays(tmp_path, 3)
  for name in arrays:
    if name.startswith('upload:'):
      arrays[name] = arrays[name] + np.float32(0.01)
  np.savez(path, **arrays)
  program = launcher.run(
    'binaries.audit',
    '--config=configs/cmfl/regressions.py:smoke',
    f'--workdir={tmp_path}',
    '--config.algorithm.audit=uploads',
  )
  assert program.returncode == 1
  assert '1 of 4 rounds do not verify' in program.stderr
  assert 'round 3: the upload of' in program.stderr
  rows = (tmp_path / 'evaluation' / 'audit.csv').read_text().splitlines()
  assert [row[:6] for row in rows[1:]] == [f'{n},True' for n in (1, 2, 3, 4)]


def test_other_experiments_are_told_what_it_is_for(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))
  with pytest.raises(errors.ConfigError, match=r'configs/cmfl/digits\.py'):
    audit.audit(config, tmp_path)


def test_one_round_that_does_not_verify_is_a_failure():
  verdicts = [
    verification.Verdict(round_num, True, faults)
    for round_num, faults in ((1, ()), (2, ('a', 'b')), (3, ()))
  ]
  with pytest.raises(
    errors.DataError, match='1 of 3 rounds do not verify:\nround 2: a; b$'
  ):
    audit.summarize(verdicts, 'abc')
