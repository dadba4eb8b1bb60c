import dataclasses
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from pipelines import build_dataset
from tests.testing import raw_data, running_sum, sum_run, toys
from tests.testing import recorder as recorder_lib
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors, seeds
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import evaluator
from tff_algos.runtimes import client_sources
from tff_algos.training import checkpoint, loop, restarts, selection

_LOCAL_TRAINING = {'num_local_epochs': 1, 'batch_size': 8}
_ALGORITHMS = {
  'fed_avg': {'name': 'fed_avg', 'cohort_size': 3},
  'fed_soft': {
    'name': 'fed_soft',
    'num_clusters': 2,
    'cohort_size_per_cluster': 2,
    'estimation_interval': 2,
  },
}


class _Experiment:
  """One algorithm on one dataset; its runtime serves many runs."""

  def __init__(self, dataset, name):
    described = dataset.schema
    model = toys.build(
      {'name': 'mlp', 'hidden_sizes': (4,)},
      tuple(described.x_shape),
      described.num_classes,
      described.task,
    )
    self.algorithm = algorithms.build_algorithm(
      algorithms.parse_config(
        {**_ALGORITHMS[name], 'local_training': _LOCAL_TRAINING}
      ),
      model,
    )
    self.dataset = dataset
    self.source = client_sources.DatasetSource(dataset, schema.TRAIN)
    self.runtime = toys.graph_runtime(
      self.algorithm, self.source.population.num_clients
    )

  def train(
    self, folder, recorder, num_rounds=4, runtime=None, kind='memory', **options
  ):
    """Opens the run of a folder and trains; returns its result and states."""
    checkpoints = checkpoint.CheckpointManager(folder, {})
    checkpoints.remove_unfinished()
    runtime = runtime or self.runtime
    store = loop.build_store(
      self.algorithm,
      self.source.population,
      7,
      checkpoints.states_folder,
      kind,
    )
    config = loop.TrainingConfig(num_rounds, client_states=kind, **options)
    result = loop.train(
      self.algorithm,
      runtime,
      self.source,
      store,
      checkpoints,
      evaluator.Evaluator(self.algorithm, self.dataset, runtime, store),
      recorder,
      config,
      7,
    )
    everyone = np.arange(self.source.population.num_clients)
    return result, store.load(everyone)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('dataset')
  build_dataset.build(raw_data.digits_config(), folder)
  with dataset_lib.FederatedDataset.open(folder) as opened:
    yield opened


@pytest.fixture(
  scope='module',
  params=[pytest.param('fed_avg', marks=pytest.mark.verify), 'fed_soft'],
)
def experiment(request, dataset):
  return _Experiment(dataset, request.param)


@pytest.fixture(scope='module')
def whole(experiment, tmp_path_factory):
  """What four rounds give without an interruption."""
  recorder = recorder_lib.Recorder()
  outcome = experiment.train(tmp_path_factory.mktemp('whole'), recorder)
  return outcome, recorder.rows


def _assert_same(experiment, folder, recorder, whole, **options):
  """Trains on to round 4 and compares everything, bit for bit."""
  outcome = experiment.train(folder, recorder, **options)
  np.testing.assert_equal(outcome, whole[0])
  np.testing.assert_equal(recorder.rows, whole[1])


@pytest.mark.parametrize('kind', ['memory', 'disk'])
@pytest.mark.parametrize('stop', [1, 2, 3])
def test_four_rounds_equal_two_and_a_restart_and_two(
  experiment, whole, tmp_path, kind, stop
):
  recorder = recorder_lib.Recorder()
  options = {'kind': kind, 'checkpoint_interval': 2}
  first, _ = experiment.train(tmp_path, recorder, stop, **options)
  assert first.round_num == stop
  _assert_same(experiment, tmp_path, recorder, whole, **options)


@pytest.mark.slow
def test_whatever_ends_a_phase_or_an_evaluation_nothing_is_lost(
  experiment, whole, tmp_path
):
  """Ctrl-C or a failure at every ninth call, and the run after it goes on."""
  options = {'checkpoint_interval': 2}
  for call_number in range(1, 100, 9):
    is_ctrl_c = call_number % 2 == 1
    error = KeyboardInterrupt() if is_ctrl_c else errors.CheckpointError('no')
    runtime = recorder_lib.FailingRuntime(
      experiment.runtime, call_number, error
    )
    folder, recorder = tmp_path / str(call_number), recorder_lib.Recorder()
    try:
      experiment.train(folder, recorder, runtime=runtime, **options)
      break
    except type(error):
      pass
    saved = checkpoint.CheckpointManager(folder, {}).rounds()
    num_recorded = max(recorder.rows, default=0)
    if is_ctrl_c and num_recorded:
      assert saved[-1] == num_recorded
    _assert_same(experiment, folder, recorder, whole, **options)
  assert call_number > 30


@pytest.mark.parametrize('is_after', [False, True])
@pytest.mark.parametrize('round_num', [0, 1, 3, 4])
def test_ctrl_c_while_a_round_is_recorded(
  experiment, whole, tmp_path, round_num, is_after
):
  recorder = recorder_lib.InterruptedRecorder(round_num, is_after)
  with pytest.raises(KeyboardInterrupt):
    experiment.train(tmp_path, recorder)
  _assert_same(experiment, tmp_path, recorder, whole)


@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit])
def test_ctrl_c_and_sigterm_save_the_last_whole_round(
  experiment, tmp_path, error
):
  recorder = recorder_lib.Recorder()
  runtime = recorder_lib.FailingRuntime(experiment.runtime, 25, error())
  with pytest.raises(error):
    experiment.train(tmp_path, recorder, runtime=runtime)
  saved = checkpoint.CheckpointManager(tmp_path, {}).rounds()[-1]
  assert saved == max(recorder.rows) > 0


@pytest.mark.parametrize('is_after', [False, True])
def test_no_checkpoint_covers_the_record_of_a_round_that_was_cut(
  experiment, tmp_path, is_after
):
  recorder = recorder_lib.InterruptedRecorder(3, is_after)
  with pytest.raises(KeyboardInterrupt):
    experiment.train(tmp_path, recorder, checkpoint_interval=2)
  assert checkpoint.CheckpointManager(tmp_path, {}).rounds()[-1] == 2
  assert recorder.persisted == [0, 1, 2]


def test_signal_that_waits_for_the_record_saves_that_round(
  experiment, tmp_path
):
  recorder = recorder_lib.InterruptedRecorder(
    3, True, lambda: signal.raise_signal(signal.SIGINT)
  )
  with pytest.raises(KeyboardInterrupt):
    experiment.train(tmp_path, recorder)
  assert checkpoint.CheckpointManager(tmp_path, {}).rounds()[-1] == 3


def test_ctrl_c_waits_for_the_end_of_a_checkpoint(tmp_path, monkeypatch):
  run = sum_run.SumRun(tmp_path)
  saved = []
  run.checkpoints.on_saved = lambda: saved.append(run.checkpoints.rounds())
  remove = shutil.rmtree

  def interrupted(path, **options):
    signal.raise_signal(signal.SIGINT)
    remove(path, **options)

  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    patched.setattr(shutil, 'rmtree', interrupted)
    run.train(3, checkpoint_interval=1)
  assert saved == [[1], [1, 2], [2, 3]]
  assert not [*tmp_path.glob('.writing_*')]


def test_finished_run_is_not_run_again(experiment, tmp_path):
  recorder = recorder_lib.Recorder()
  outcome = experiment.train(tmp_path, recorder, 2)
  idle = recorder_lib.FailingRuntime(
    experiment.runtime, 1, AssertionError('it ran')
  )
  again = experiment.train(tmp_path, recorder, 2, runtime=idle)
  np.testing.assert_equal(again, outcome)
  assert list(recorder.rows) == [0, 1, 2]


def test_rounds_by_hand(tmp_path):
  run = sum_run.SumRun(tmp_path)
  result = run.train(2)
  # Round 1: 1 and 5 are said, the total is 6. Round 2: 7 and 11, 24 in all.
  assert result.round_num == 2
  assert result.server_state.total == 24
  assert result.server_state.mean == pytest.approx((7 + 2 * 11) / 3)
  states = run.store.load(np.arange(2))
  np.testing.assert_array_equal(states.num_turns, [2, 2])
  np.testing.assert_array_equal(states.last, [[7, 2], [11, 2]])
  assert run.recorder.rows == {
    0: {'total': 0.0},
    1: {
      **{'cost/downlink_floats': 1, 'cost/uplink_floats': 2},
      **{'cost/local_solves': 3, 'clients/invalid': 0, 'clients/dropped': 0},
      **{'add/x': 2.0, 'add/weight': 3.0, 'add/num_said': 2.0, 'total': 6.0},
    },
    2: run.recorder.rows[1] | {'total': 24.0},
  }


def test_plan_learns_the_state_after_each_phase_and_costs_add_up(tmp_path):
  learnt = []

  def plan_round(server_state, population, round_num, seed):
    learnt.append(float(server_state.total))
    server_state = yield running_sum.phase_call([0], [0])
    learnt.append(float(server_state.total))
    server_state = yield running_sum.phase_call([1, 0], [0, 0])
    learnt.append(float(server_state.total))

  algorithm = dataclasses.replace(
    running_sum.algorithm(), plan_round=plan_round
  )
  run = sum_run.SumRun(tmp_path, algorithm)
  run.train(1)
  # 0 + 1 = 1; then 1 + (1 + 5) + (1 + 1) = 9.
  assert learnt == [0, 1, 9]
  # The second phase has seen what the first one left at client 0.
  assert run.store.load(np.array([0, 1])).num_turns.tolist() == [2, 1]
  row = run.recorder.rows[1]
  assert row['cost/uplink_floats'] == 4
  # The mean over both calls of 1 and of 2, 3, 1; the server's, of the last.
  assert row['add/x'] == 7 / 4
  assert row['add/weight'] == 3


@pytest.mark.parametrize(
  ('phase', 'indices', 'words'),
  [
    ('sum', [0], "plan_round calls the phase 'sum'; its phases are add"),
    (
      'add',
      [-1],
      "'add': the plan contains client_index -1, and the 2 clients",
    ),
    ('add', [0, 2], 'client_index 2, .* have indices from 0 to 1'),
  ],
)
def test_a_plan_calls_what_there_is(phase, indices, words):
  call = dataclasses.replace(
    running_sum.phase_call(indices, [0.0] * len(indices)), phase=phase
  )
  algorithm = dataclasses.replace(
    running_sum.algorithm(), plan_round=lambda *_: (one for one in [call])
  )
  clients = running_sum.source([1], [2])
  with pytest.raises(errors.StageTypeError, match=words):
    toys.run_rounds(algorithm, clients, 1)


def test_round_without_a_phase_changes_nothing(tmp_path):
  algorithm = dataclasses.replace(
    running_sum.algorithm(), plan_round=lambda *unused: (_ for _ in ())
  )
  run = sum_run.SumRun(tmp_path, algorithm)
  assert run.train(2).server_state.total == 0
  assert list(run.recorder.rows) == [0, 1, 2]


def test_invalid_clients_are_counted(tmp_path):
  run = sum_run.SumRun(tmp_path, clients=([1.0], [np.nan]))
  assert run.train(2).server_state.total == 3
  assert run.recorder.rows[2]['clients/invalid'] == 1


def test_invalid_clients_of_all_phases_are_counted(tmp_path):
  """Client 1 is in the first of two phase calls only."""

  def plan_round(server_state, population, round_num, seed):
    yield running_sum.phase_call([0, 1], [0, 0])
    yield running_sum.phase_call([0], [0])

  algorithm = dataclasses.replace(
    running_sum.algorithm(), plan_round=plan_round
  )
  run = sum_run.SumRun(tmp_path, algorithm, ([1.0], [np.nan]))
  run.train(1)
  assert run.recorder.rows[1]['clients/invalid'] == 1


def test_intervals(tmp_path):
  run = sum_run.SumRun(tmp_path)
  run.train(5, evaluation_interval=3, checkpoint_interval=2)
  evaluated = [r for r, row in run.recorder.rows.items() if 'total' in row]
  assert evaluated == [0, 3, 5]
  assert run.checkpoints.rounds() == [4, 5]


class _Scripted:
  """An evaluator whose metric is known for each round."""

  selection_metric = 'score'

  def __init__(self, *values):
    self._values = values

  def evaluate(self, server_state):
    # The total after each round is known.
    round_num = _TOTALS.index(float(np.asarray(server_state.total)))
    return evaluator.Evaluation({'score': self._values[round_num]})


def _totals(num_rounds):
  """Returns the total after each round: three times, and 6, by two clients."""
  totals = [0.0]
  for _ in range(num_rounds):
    totals.append(3 * totals[-1] + 6)
  return totals


_TOTALS = _totals(9)
_PATIENT = {
  'selection': selection.SelectionConfig(patience=2),
  'checkpoint_interval': 100,
}


def test_early_stopping_keeps_the_best_and_the_last_round(tmp_path):
  run = sum_run.SumRun(tmp_path)
  # Round 3 ties with 2, round 4 is worse: two evaluations without a gain.
  scripted = _Scripted(0.1, 0.2, 0.5, 0.5, 0.4, 0.9, 0.9)
  result = run.train(6, evaluator=scripted, **_PATIENT)
  assert result.round_num == 4
  assert list(run.recorder.rows) == [0, 1, 2, 3, 4]
  assert run.checkpoints.rounds() == [2, 4]
  assert run.checkpoints.find('best') == 2
  assert run.checkpoints.progress(4) == (2, 0.5, 2, 'largest score')
  # A stopped run is over.
  again = sum_run.SumRun(tmp_path)
  again.recorder = run.recorder
  assert again.train(6, evaluator=scripted, **_PATIENT).round_num == 4
  assert list(run.recorder.rows) == [0, 1, 2, 3, 4]


def test_patience_counts_evaluations(tmp_path):
  run = sum_run.SumRun(tmp_path)
  scripted = _Scripted(0.0, 0.0, 0.5, 0.9, 0.4, 0.9, 0.3, 0.9)
  result = run.train(7, evaluator=scripted, evaluation_interval=2, **_PATIENT)
  assert result.round_num == 6
  assert run.checkpoints.find('best') == 2


def test_an_extended_run_is_as_patient_as_a_long_one(tmp_path):
  """Its old end, round 3, was evaluated beside the interval."""
  values = (0.0, 0.0, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2)
  options = {
    **{'evaluator': _Scripted(*values), 'evaluation_interval': 2},
    **_PATIENT,
  }
  run = sum_run.SumRun(tmp_path / 'extended')
  assert run.train(3, **options).round_num == 3
  again = sum_run.SumRun(tmp_path / 'extended')
  again.recorder = run.recorder
  whole = sum_run.SumRun(tmp_path / 'whole')
  assert again.train(8, **options).round_num == 6
  assert whole.train(8, **options).round_num == 6
  assert again.checkpoints.progress(6) == whole.checkpoints.progress(6)


@pytest.mark.parametrize('stop', [1, 2, 3, 4])
def test_early_stopping_after_an_interruption(tmp_path, stop):
  values = (0.1, 0.2, 0.5, 0.3, 0.4, 0.9, 0.9)
  whole = sum_run.SumRun(tmp_path / 'whole')
  expected = whole.train(6, evaluator=_Scripted(*values), **_PATIENT)
  folder = tmp_path / 'interrupted'
  first = sum_run.SumRun(folder)
  first.recorder = recorder_lib.InterruptedRecorder(stop, is_after=True)
  with pytest.raises(KeyboardInterrupt):
    first.train(6, evaluator=_Scripted(*values), **_PATIENT)
  second = sum_run.SumRun(folder)
  second.recorder = first.recorder
  found = second.train(6, evaluator=_Scripted(*values), **_PATIENT)
  np.testing.assert_equal(found, expected)
  everyone = np.arange(2)
  np.testing.assert_equal(
    second.store.load(everyone), whole.store.load(everyone)
  )
  np.testing.assert_equal(second.recorder.rows, whole.recorder.rows)
  for name in ('server_state.npz', 'client_index.npz'):
    one, other = (
      (path / 'round_000004' / name).read_bytes()
      for path in (tmp_path / 'whole', folder)
    )
    assert one == other
  assert second.checkpoints.progress(4) == whole.checkpoints.progress(4)
  assert second.checkpoints.find('best') == 2


def test_store_knows_every_initial_state(tmp_path):
  def init_client_state(run_seed, client_seed):
    return {'run': run_seed, 'client': client_seed}

  algorithm = dataclasses.replace(
    running_sum.algorithm(), init_client_state=init_client_state
  )
  population = running_sum.source([1.0], [2.0]).population
  states = loop.build_store(algorithm, population, 5, tmp_path, 'memory').load(
    np.arange(2)
  )
  run_seed = seeds.derive_seed(5, 'initialize')
  np.testing.assert_array_equal(states['run'], [run_seed, run_seed])
  np.testing.assert_array_equal(
    states['client'],
    [seeds.derive_seed(5, 'initialize', 0, one) for one in ('c000', 'c001')],
  )


def test_the_stores_of_many_runs_are_not_taken_for_retracing(tmp_path, caplog):
  """TensorFlow warns of a function of which it traces five in a row."""
  algorithm = running_sum.algorithm()
  population = running_sum.source([1.0]).population
  for _ in range(6):
    loop.build_store(algorithm, population, 5, tmp_path, 'memory').load([0])
  assert 'retracing' not in caplog.text


def test_initial_server_state_depends_on_the_seed_alone():
  algorithm = dataclasses.replace(
    running_sum.algorithm(),
    init_server_state=lambda seed, num_clients: tf.random.stateless_normal(
      [num_clients], seed
    ),
  )
  first = loop.initial_server_state(algorithm, 4, 1)
  assert isinstance(first, np.ndarray)
  np.testing.assert_array_equal(
    first, loop.initial_server_state(algorithm, 4, 1)
  )
  assert (first != loop.initial_server_state(algorithm, 4, 2)).all()


def test_a_trial_is_no_longer_than_the_training():
  text = 'restarts.num_rounds must be an integer from 1 to 4, got 5'
  with pytest.raises(errors.ConfigError, match=text):
    loop.TrainingConfig(4, restarts=restarts.RestartsConfig(2, 5))
  loop.TrainingConfig(4, restarts=restarts.RestartsConfig(1, 5))


@pytest.mark.parametrize(
  'values',
  [
    {'num_rounds': 0},
    {'num_rounds': 1, 'evaluation_interval': 0},
    {'num_rounds': 1, 'checkpoint_interval': 0},
    {'num_rounds': 1, 'num_kept_checkpoints': 0},
    {'num_rounds': 1, 'client_states': 'tape'},
    {'num_rounds': 1, 'dropout_rate': 1.0},
  ],
)
def test_config_refuses(values):
  with pytest.raises(errors.ConfigError, match=list(values)[-1]):
    loop.TrainingConfig(**values)
