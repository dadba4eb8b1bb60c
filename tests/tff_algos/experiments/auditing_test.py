"""The log of whole trainings: interrupted, attacked, with clients that fail."""

from unittest import mock

import pytest

from configs.fed_soft import digits
from tests.testing import audited, raw_data
from tff_algos.algorithms.cmfl.audit import audit_log, verification
from tff_algos.core import errors
from tff_algos.experiments import auditing, datasets, experiment, training
from tff_algos.training import metrics_log


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('regressions')
  datasets.build(experiment.parse(audited.make_config()).dataset, folder)
  return folder / 'dataset'


def _train(values, dataset, folder, parent=''):
  folder.mkdir(exist_ok=True)
  if not (folder / 'dataset').exists():
    (folder / 'dataset').symlink_to(dataset)
  training.train(experiment.parse(values), folder, parent=parent)


@pytest.mark.verify
def test_a_training_that_is_stopped_logs_every_round_once(
  dataset, tmp_path, monkeypatch
):
  """Stopped when round 3 is in the log and not yet in metrics.csv.

  The other log, of digests alone, has the same lines and no uploads.
  """
  whole, stopped = tmp_path / 'whole', tmp_path / 'stopped'
  _train(audited.make_config(audit='digests'), dataset, whole)
  record = metrics_log.MetricsLog.record

  def stop(self, round_num, *rest):
    if round_num == 3:
      raise RuntimeError('killed')
    record(self, round_num, *rest)

  monkeypatch.setattr(metrics_log.MetricsLog, 'record', stop)
  with pytest.raises(RuntimeError, match='killed'):
    _train(audited.make_config(), dataset, stopped)
  assert [one['round'] for one, _ in audit_log.read(stopped)] == [1, 2, 3]
  monkeypatch.setattr(metrics_log.MetricsLog, 'record', record)
  _train(audited.make_config(), dataset, stopped)
  logs = [raw_data.file_bytes(one / 'audit') for one in (whole, stopped)]
  assert logs[0]['log.jsonl'] == logs[1]['log.jsonl']
  assert [one['round'] for one, _ in audit_log.read(whole)] == [1, 2, 3, 4]
  assert [len(files) for files in logs] == [1, 5]


def test_no_log_is_kept_unless_asked(tmp_path):
  config = experiment.parse(audited.make_config(audit='none'))
  ours = object(), object()
  assert auditing.attend(config, tmp_path, *ours) == ours


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
    pytest.param(_fall, {'upload': 'update'}, marks=pytest.mark.verify),
  ],
)
def test_honest_logs_verify(dataset, tmp_path, change, algorithm):
  values = audited.make_config(**algorithm)
  change(values)
  _train(values, dataset, tmp_path)
  verdicts = auditing.verify(experiment.parse(values), tmp_path)
  assert [one.round_num for one in verdicts] == [1, 2, 3, 4]
  assert [one.faults for one in verdicts] == [()] * 4
  text = auditing.summarize(verdicts)
  assert text.startswith('All 4 rounds verify')
  assert text.endswith(f' {audit_log.read(tmp_path)[-1][1]}.')


def test_the_log_of_a_continued_run_verifies_with_a_schedule_of_its_own(
  dataset, tmp_path
):
  values = audited.make_config(upload='update')
  _fall(values)
  values.training.num_rounds = 3
  values.continuation.schedule = 'anew'
  first, second = tmp_path / 'first', tmp_path / 'second'
  _train(values, dataset, first)
  _train(values, dataset, second, parent=first)
  verdicts = auditing.verify(experiment.parse(values), second)
  assert [one.round_num for one in verdicts] == [4, 5, 6]
  assert [one.faults for one in verdicts] == [()] * 3


@pytest.mark.parametrize('first', [0, 100])
def test_the_state_before_the_first_round_has_no_line(first, tmp_path):
  """A run that continues another records its parent's last round."""
  log = audit_log.AuditLog(tmp_path)
  auditor = auditing.Auditor(mock.Mock(), mock.Mock(), log, 'digests')
  auditor.resume(0, {})
  for round_num in (first, first + 1):
    auditor.record(round_num, {})
  auditor.resume(first + 1, {})
  auditor.record(first + 2, {})
  rounds = [entry['round'] for entry, _ in audit_log.read(tmp_path)]
  assert rounds == [first + 1, first + 2]


def test_other_experiments_are_told_what_it_is_for(tmp_path):
  config = experiment.parse(digits.get_config('smoke'))
  with pytest.raises(errors.ConfigError, match=r'configs/cmfl/digits\.py'):
    auditing.verify(config, tmp_path)


def test_one_round_that_does_not_verify_is_a_failure():
  verdicts = [
    verification.Verdict(round_num, True, faults, 'abc')
    for round_num, faults in ((1, ()), (2, ('a', 'b')), (3, ()))
  ]
  with pytest.raises(
    errors.DataError, match='1 of 3 rounds do not verify:\nround 2: a; b$'
  ):
    auditing.summarize(verdicts)
  assert '(no line)' in auditing.summarize([])
