"""What Ctrl-C leaves of a round: all of it, or nothing."""

import signal

import numpy as np
import pytest

from tests.testing import recorder, sum_run


def test_ctrl_c_forgets_the_states_of_the_round(tmp_path):
  run = sum_run.SumRun(tmp_path)
  run.recorder = recorder.InterruptedRecorder(2, False)
  with pytest.raises(KeyboardInterrupt):
    run.train(3)
  turns = run.store.load(np.arange(2)).num_turns
  np.testing.assert_array_equal(turns, [1, 1])


def test_ctrl_c_within_a_commit_saves_no_half_of_a_round(tmp_path, monkeypatch):
  """A second Ctrl-C ends the commit of round 3 after one of two clients."""
  whole = sum_run.SumRun(tmp_path / 'whole')
  expected = whole.train(4)
  stopped = sum_run.SumRun(tmp_path / 'stopped')
  puts, put = [], stopped.store._put

  def interrupt(places, client, place):
    if places is stopped.store._committed:
      puts.append(client)
    if len(puts) == 2 * 2 + 2:
      raise KeyboardInterrupt
    put(places, client, place)

  monkeypatch.setattr(stopped.store, '_put', interrupt)
  with pytest.raises(KeyboardInterrupt):
    stopped.train(4)
  assert puts == [0, 1] * 3
  assert not stopped.checkpoints.rounds()
  again = sum_run.SumRun(tmp_path / 'stopped')
  np.testing.assert_equal(again.train(4), expected)
  everyone = np.arange(2)
  np.testing.assert_equal(
    again.store.load(everyone), whole.store.load(everyone)
  )


def test_rows_are_permanent_before_a_checkpoint_counts_on_them(tmp_path):
  run = sum_run.SumRun(tmp_path)
  run.recorder = recorder.InterruptedRecorder(
    3, True, lambda: signal.raise_signal(signal.SIGINT)
  )
  saved, save = [], run.checkpoints.save

  def check_and_save(round_num, *rest, **entries):
    assert run.recorder.persisted == list(range(round_num + 1))
    saved.append(round_num)
    save(round_num, *rest, **entries)

  run.checkpoints.save = check_and_save
  with pytest.raises(KeyboardInterrupt):
    run.train(6, checkpoint_interval=2)
  # By the interval, and by Ctrl-C after round 3.
  assert saved == [2, 3]
