import errno
import json
import os
import pathlib
import shutil
import signal
import time

import numpy as np
import pytest

from tests.testing import forks, full_disk, power_loss, saved_run
from tff_algos.core import errors, records, sealed_json
from tff_algos.training import checkpoint, selection


def _train(folder, num_rounds):
  forks.ready()
  saved_run.Run(pathlib.Path(folder)).resume().train(int(num_rounds))


def test_save_and_restore(tmp_path):
  saved_run.Run(tmp_path).train(3)
  state = saved_run.Run(tmp_path).restore(3)
  assert isinstance(state, saved_run.ServerState)
  assert state.weights['kernel'].dtype == np.float32
  assert state.round_num.dtype == np.int64
  assert saved_run.check_latest(tmp_path) == 3


@pytest.mark.parametrize('kind', ['memory', 'disk'])
def test_old_checkpoints_and_segments_that_nobody_needs_are_removed(
  tmp_path, kind
):
  run = saved_run.Run(tmp_path, num_kept=2, kind=kind).train(9)
  assert run.checkpoints.rounds() == [8, 9]
  # Client 3 changed in the rounds 3 and 9, client 5 in 5, client 0 in 6 and 9,
  # client 1 in 7, clients 2 and 4 in 8.
  assert saved_run.files(tmp_path) == [
    *(f'client_states/round_{r:06d}.npy' for r in (3, 5, 6, 7, 8, 9)),
    'clients.json',
    *(
      f'round_{r:06d}/{name}'
      for r in (8, 9)
      for name in (
        'checkpoint.json',
        'client_index.npz',
        'records.json',
        'server_state.npz',
      )
    ),
  ]
  assert saved_run.check_latest(tmp_path) == 9
  assert saved_run.Run(tmp_path).restore(8).round_num == 8


def test_each_checkpoint_is_told_when_it_is_whole(tmp_path):
  run = saved_run.Run(tmp_path, num_kept=1)
  seen = []
  run.checkpoints.on_saved = lambda: seen.append(run.checkpoints.rounds())
  run.train(3)
  assert seen == [[1], [2], [3]]


def test_the_best_round_is_kept(tmp_path):
  best = selection.Progress(2, 0.9)
  run = saved_run.Run(tmp_path, num_kept=1).train(4, progress=best)
  assert run.checkpoints.rounds() == [2, 4]
  fresh = saved_run.Run(tmp_path)
  fresh.restore(2)
  assert fresh.states() == saved_run.expected_states(2)


def test_the_last_the_best_and_a_named_round_are_found(tmp_path):
  best = selection.Progress(2, 0.9)
  checkpoints = saved_run.Run(tmp_path).train(4, progress=best).checkpoints
  found = [checkpoints.find(choice) for choice in ('last', 'best', 3, '3')]
  assert found == [4, 2, 3, 3]
  assert checkpoints.progress(4) == best
  with pytest.raises(errors.CheckpointError, match='of round 1; .* 2, 3, 4'):
    checkpoints.find(1)
  with pytest.raises(errors.ConfigError, match="or 'best', got 'latest'"):
    checkpoints.find('latest')


def test_the_start_of_a_continued_run_is_the_best_so_far(tmp_path):
  run = saved_run.Run(tmp_path).train(1, starts_run=True)
  assert run.checkpoints.find('best') == 1


def test_a_lost_best_round_is_trained_anew(tmp_path):
  best = selection.Progress(2, 0.9)
  run = saved_run.Run(tmp_path, num_kept=3).train(5, progress=best)
  assert run.checkpoints.rounds() == [2, 3, 4, 5]
  (tmp_path / 'round_000002' / 'server_state.npz').write_bytes(b'')
  with pytest.raises(
    errors.CheckpointError,
    match=f'remove {tmp_path} and run .*it trains from the beginning',
  ):
    saved_run.Run(tmp_path).restore(2)


def test_what_lies_before_a_lost_best_round_is_kept(tmp_path):
  run = saved_run.Run(tmp_path, num_kept=4).train(1)
  run.train(4, progress=selection.Progress(2, 0.9))
  (tmp_path / 'round_000002' / 'server_state.npz').write_bytes(b'')
  with pytest.raises(
    errors.CheckpointError,
    match='remove .*02 and .*03 and .*04 and run .*checkpoint of round 1, which',
  ):
    saved_run.Run(tmp_path).restore(2)


def test_without_a_metric_there_is_no_best_round(tmp_path):
  run = saved_run.Run(tmp_path)
  with pytest.raises(errors.CheckpointError, match='holds no checkpoint'):
    run.checkpoints.find()
  run.train(1)
  with pytest.raises(
    errors.CheckpointError, match='best round.*run of its own'
  ):
    run.checkpoints.find('best')


@pytest.mark.parametrize(
  ('text', 'choice'), [('last', 'last'), ('best', 'best'), ('12', 12)]
)
def test_choices_of_a_round(text, choice):
  assert checkpoint.parse_choice(text) == choice


@pytest.mark.parametrize('text', ['-1', 'first', ''])
def test_bad_choices_of_a_round(text):
  with pytest.raises(
    errors.ConfigError, match="number of a round, 'last' or 'best'"
  ):
    checkpoint.parse_choice(text)


def test_saving_a_saved_round_again_changes_nothing(tmp_path):
  run = saved_run.Run(tmp_path).train(2)
  before = [
    os.stat(tmp_path / name).st_mtime_ns for name in saved_run.files(tmp_path)
  ]
  run.save()
  assert before == [
    os.stat(tmp_path / name).st_mtime_ns for name in saved_run.files(tmp_path)
  ]


def test_who_only_reads_writes_and_removes_nothing(tmp_path):
  saved_run.Run(tmp_path).train(3)
  (tmp_path / '.writing_000004').mkdir()
  before = saved_run.files(tmp_path)
  reader = saved_run.Run(tmp_path, read_only=True).resume()
  assert reader.round_num == 3
  reader.train(5)
  assert reader.states() == saved_run.expected_states(5)
  assert saved_run.files(tmp_path) == before
  assert (tmp_path / '.writing_000004').exists()


def test_interrupted_run_ends_in_the_same_files(tmp_path):
  saved_run.Run(tmp_path / 'whole').train(7)
  for stop in range(1, 8):
    saved_run.Run(tmp_path / 'parts').resume().train(stop)
  names = saved_run.files(tmp_path / 'whole')
  assert saved_run.files(tmp_path / 'parts') == names
  for name in names:
    whole, parts = (
      (tmp_path / run / name).read_bytes() for run in ('whole', 'parts')
    )
    assert whole == parts, name


def test_flipped_byte_in_any_file_is_found_and_named(tmp_path):
  saved_run.Run(tmp_path).train(3)
  for name in saved_run.files(tmp_path):
    if name.startswith('round_000002'):
      continue
    path = tmp_path / name
    content = path.read_bytes()
    for position in (0, len(content) // 2, len(content) - 1):
      damaged = bytearray(content)
      damaged[position] ^= 0x20
      path.write_bytes(damaged)
      with pytest.raises(errors.CheckpointError, match=path.name):
        checkpoints = saved_run.Run(tmp_path).checkpoints
        checkpoints.read(3)
        checkpoints.checked_records(3)
    path.write_bytes(content)
  assert saved_run.check_latest(tmp_path) == 3


@pytest.mark.parametrize('cut', [0, 10])
def test_truncated_and_missing_files_are_found(tmp_path, cut):
  saved_run.Run(tmp_path).train(3)
  for name in saved_run.files(tmp_path):
    if name.startswith('round_000002') or name.endswith('records.json'):
      continue
    path = tmp_path / name
    content = path.read_bytes()
    path.write_bytes(content[:-10]) if cut else path.unlink()
    with pytest.raises(errors.CheckpointError, match=path.name):
      saved_run.Run(tmp_path).restore(3)
    path.write_bytes(content)


def test_after_a_damaged_checkpoint_is_removed_the_one_before_serves(tmp_path):
  saved_run.Run(tmp_path).train(5)
  (tmp_path / 'round_000005' / 'server_state.npz').write_bytes(b'')
  with pytest.raises(
    errors.CheckpointError,
    match='remove .*round_000005 and run binaries.train .* of round 4, which',
  ):
    saved_run.Run(tmp_path).restore(5)
  shutil.rmtree(tmp_path / 'round_000005')
  saved_run.Run(tmp_path).resume().train(6)
  assert saved_run.check_latest(tmp_path) == 6


def test_checkpoint_without_its_manifest_is_not_passed_over(tmp_path):
  saved_run.Run(tmp_path).train(5)
  path = tmp_path / 'round_000005' / 'checkpoint.json'
  path.unlink()
  run = saved_run.Run(tmp_path)
  assert run.checkpoints.rounds() == [4, 5]
  for read in (run.resume, lambda: run.checkpoints.find('best')):
    with pytest.raises(errors.CheckpointError, match=f'{path} is missing'):
      read()


def test_checkpoint_that_cannot_be_read_was_not_removed(tmp_path):
  run = saved_run.Run(tmp_path)
  run.train(5)
  (folder,) = tmp_path.rglob('round_000005')
  shutil.rmtree(folder)
  folder.symlink_to(folder)  # Also root cannot read it.
  with pytest.raises(errors.CheckpointError, match='Put a copy of it back'):
    run.restore(5)


def test_checkpoint_that_a_training_removes_while_it_is_read(tmp_path):
  saved_run.Run(tmp_path).train(5)
  reader = saved_run.Run(tmp_path)
  reader.restore(5, maps_all=True)
  saved_run.Run(tmp_path).resume().train(8)
  assert reader.checkpoints.rounds() == [7, 8]
  assert reader.states() == saved_run.expected_states(5)
  with pytest.raises(
    errors.CheckpointError,
    match='round_000005 was removed while it was read, .* run the same command',
  ):
    reader.restore(5)
  with pytest.raises(errors.CheckpointError, match='removed while it was read'):
    reader.checkpoints.checked_records(5)


def test_checkpoint_that_a_training_removes_after_its_check(
  tmp_path, monkeypatch
):
  saved_run.Run(tmp_path).train(5)
  reader = saved_run.Run(tmp_path).checkpoints
  (folder,) = tmp_path.rglob('round_000005')
  load = np.load

  def remove_first(path):
    shutil.rmtree(folder)
    return load(path)

  monkeypatch.setattr(np, 'load', remove_first)
  with pytest.raises(errors.CheckpointError, match='removed while it was read'):
    reader.read(5)


def test_segment_that_a_training_removes_while_it_is_read(
  tmp_path, monkeypatch
):
  saved_run.Run(tmp_path).train(5)
  reader = saved_run.Run(tmp_path)
  read = reader.checkpoints.read

  def read_slowly(round_num):
    saved = read(round_num)
    saved_run.Run(tmp_path).resume().train(20)
    return saved

  monkeypatch.setattr(reader.checkpoints, 'read', read_slowly)
  with pytest.raises(errors.CheckpointError, match='removed while it was read'):
    reader.restore(5, maps_all=True)


def test_advice_names_all_damaged_checkpoints(tmp_path):
  saved_run.Run(tmp_path, num_kept=3).train(6)
  for name in ('round_000006/checkpoint.json', 'round_000005/client_index.npz'):
    (tmp_path / name).write_bytes(b'')
  folders = f'{tmp_path}/round_000005 and {tmp_path}/round_000006'
  with pytest.raises(errors.CheckpointError) as caught:
    saved_run.Run(tmp_path).restore(6)
  assert f'remove {folders} and run binaries.train again' in str(caught.value)
  (tmp_path / 'round_000004' / 'server_state.npz').unlink()
  with pytest.raises(errors.CheckpointError) as caught:
    saved_run.Run(tmp_path).restore(6)
  assert f'remove {tmp_path} and run binaries.train again' in str(caught.value)


def test_records_are_checked_with_the_checkpoint(tmp_path):
  log = tmp_path / 'metrics.csv'
  log.write_bytes(b'a\r\n1\r\n')
  entry = records.describe(log.read_bytes(), num_rows=1, num_columns=1)
  run = saved_run.Run(tmp_path / 'checkpoints')
  run.train(2, entries={log.name: entry})
  assert run.checkpoints.checked_records(2) == {log.name: entry}
  assert run.checkpoints.checked_records(0) == {}
  log.write_bytes(b'a\r\n2\r\n')
  place = run.folder / 'round_000002' / records.FILE
  with pytest.raises(
    errors.CheckpointError,
    match=f'{log} is damaged.* remove {log} and {place} to go on without it, '
    f'or remove {run.folder} and run binaries.train .* from the beginning',
  ):
    run.checkpoints.checked_records(2)
  # The models do not depend on it.
  assert saved_run.Run(run.folder).restore(2).round_num == 2


def test_without_records_they_are_taken_as_they_are(tmp_path, caplog):
  run = saved_run.Run(tmp_path).train(1)
  place = tmp_path / 'round_000001' / records.FILE
  place.unlink()
  assert run.checkpoints.checked_records(1) == {}
  assert f'{place} is missing' in caplog.text


def test_folder_of_checkpoints_that_is_a_file_is_refused(tmp_path):
  path = tmp_path / 'checkpoints'
  path.write_text('')
  with pytest.raises(errors.CheckpointError, match=f'{path} is a file'):
    saved_run.Run(path).resume()


def test_manifest_of_another_schema_version_is_refused(tmp_path):
  saved_run.Run(tmp_path).train(1)
  path = tmp_path / 'round_000001' / 'checkpoint.json'
  manifest = json.loads(path.read_text())
  changed = sealed_json.seal(manifest | {'schema_version': 99})
  path.write_text(json.dumps(changed))
  with pytest.raises(
    errors.CheckpointError, match='schema version 99.*reads 1'
  ):
    saved_run.Run(tmp_path).restore(1)


def test_server_state_of_another_program_version_is_refused(tmp_path):
  run = saved_run.Run(tmp_path).train(1)
  with pytest.raises(
    errors.CheckpointError, match=r'arrays of the shapes .*that version'
  ):
    run.checkpoints.restore(1, {'kernel': np.zeros(4, np.float32)}, run.store)


def test_other_identity_is_refused_with_the_keys_that_differ(tmp_path):
  saved_run.Run(tmp_path).train(1)
  other = {'seed': 3, 'algorithm': {'name': 'b', 'sizes': (1, 2), 'new': 0.5}}
  with pytest.raises(errors.CheckpointError) as caught:
    saved_run.Run(tmp_path, identity=other).restore(1)
  text = str(caught.value)
  assert '(algorithm.name: a there, b now; ' in text
  assert 'algorithm.new: absent there, 0.5 now)' in text
  assert 'seed' not in text and 'sizes' not in text
  assert '--workdir' in text


@pytest.mark.parametrize('before', [0, 3])
def test_power_loss_leaves_the_round_before_or_after(tmp_path, before):
  """Round 1 makes the folders; round 4 removes a checkpoint and a segment."""
  run, whole = (
    saved_run.Run(tmp_path / name / 'checkpoints', num_kept=1)
    for name in ('run', 'whole')
  )
  (tmp_path / 'run').mkdir()
  run.train(before)
  whole.train(before + 2)

  def recover(place, is_finished):
    run = saved_run.Run(place / 'checkpoints', num_kept=1)
    for round_num in run.checkpoints.rounds():  # For readers all are whole.
      assert run.restore(round_num).round_num == round_num
    run = saved_run.Run(run.folder, num_kept=1).resume()
    assert run.round_num in (before + 1, before)[: 2 - is_finished]
    assert run.states() == saved_run.expected_states(run.round_num)
    # It goes on from there, and nothing is left over.
    run.train(before + 2)
    assert saved_run.check_latest(run.folder) == before + 2
    assert saved_run.files(run.folder) == saved_run.files(whole.folder)

  power_loss.check(tmp_path / 'run', lambda: run.train(before + 1), recover)


@pytest.mark.verify
def test_killed_at_random_moments_ends_in_the_same_files(launcher, tmp_path):
  num_rounds = 300
  generator = np.random.default_rng(0)
  num_kills = 0
  for _ in range(12):
    with forks.child(launcher, _train, tmp_path / 'killed', num_rounds):
      time.sleep(generator.uniform(0.005, 0.15))
    num_kills += 1
    if saved_run.Run(tmp_path / 'killed').checkpoints.rounds():
      saved_run.check_latest(tmp_path / 'killed')
  saved_run.Run(tmp_path / 'killed').resume().train(num_rounds)
  saved_run.Run(tmp_path / 'whole').train(num_rounds)
  names = saved_run.files(tmp_path / 'whole')
  assert saved_run.files(tmp_path / 'killed') == names
  for name in names:
    whole, killed = (
      (tmp_path / run / name).read_bytes() for run in ('whole', 'killed')
    )
    assert whole == killed, name


@pytest.mark.parametrize('kind', ['memory', 'disk'])
def test_ctrl_c_while_saving_leaves_nothing_and_can_be_saved_again(
  tmp_path, kind, monkeypatch
):
  run = saved_run.Run(tmp_path, kind=kind).train(2)
  run.step()
  with monkeypatch.context() as patched:
    patched.setattr(os, 'rename', lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
      run.save()
  assert run.checkpoints.rounds() == [1, 2]
  assert not [name for name in saved_run.files(tmp_path) if '3' in name]
  run.save()
  assert saved_run.check_latest(tmp_path) == 3


def test_full_disk_at_any_fsync_ends_in_the_same_files(tmp_path, monkeypatch):
  """Whether the checkpoint is there or the one before, and at its removal."""
  whole = saved_run.Run(tmp_path / 'whole', num_kept=1).train(4)
  names = saved_run.files(whole.folder)
  fsync, found = os.fsync, []
  while True:
    run = saved_run.Run(tmp_path / str(len(found)), num_kept=1).train(3)
    calls = []

    def fail(descriptor, calls=calls, number=len(found)):
      calls.append(descriptor)
      if len(calls) == number + 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
      fsync(descriptor)

    with monkeypatch.context() as patched:
      patched.setattr(os, 'fsync', fail)
      try:
        run.train(4)
        break
      except errors.InfrastructureError as error:
        text = str(error)
    rounds = run.checkpoints.rounds()
    is_there = 4 in rounds
    assert ('cannot write' in text) != is_there
    assert ('power loss may undo' in text) == is_there
    assert f'checkpoint of round {rounds[-1]} is whole' in text
    again = saved_run.Run(run.folder, num_kept=1).resume()
    assert again.checkpoints.rounds() == [4 if is_there else 3]
    again.train(4)
    assert saved_run.files(run.folder) == names
    for name in names:
      ours, theirs = (
        (each.folder / name).read_bytes() for each in (run, whole)
      )
      assert ours == theirs, name
    found.append(is_there)
  # The last two: the folder after the rename, and before the removal.
  assert found == [False] * (len(found) - 2) + [True] * 2
  assert len(found) > 8


def test_first_checkpoint_that_does_not_fit(tmp_path):
  run = saved_run.Run(tmp_path / 'checkpoints')
  run.step()
  with (
    full_disk.after(100),
    pytest.raises(
      errors.InfrastructureError, match='File too large. There is no earlier'
    ),
  ):
    run.save()
  assert saved_run.files(tmp_path / 'checkpoints') == ['clients.json']
  # Of another dataset, which the workdir had then.
  (tmp_path / 'checkpoints/clients.json').write_text('["ann"]')
  run.save()
  assert 'ann' not in (tmp_path / 'checkpoints/clients.json').read_text()
  assert saved_run.check_latest(tmp_path / 'checkpoints') == 1


def test_checkpoint_that_does_not_fit_leaves_the_one_before_whole(tmp_path):
  run = saved_run.Run(tmp_path).train(3)
  before = saved_run.files(tmp_path)
  run.step()
  with (
    full_disk.after(100),
    pytest.raises(
      errors.InfrastructureError,
      match='round 4 in .*File too large. The checkpoint of round 3 is whole',
    ),
  ):
    run.save()
  assert saved_run.files(tmp_path) == before
  run.save()
  assert saved_run.check_latest(tmp_path) == 4
