import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from benchmarks import cases, errors, run
from benchmarks.contenders import registry
from tests.testing import patience, programs

_PATIENCE_SECONDS = 180


def _start(tmp_path, *arguments):
  return subprocess.Popen(
    [sys.executable, '-m', 'benchmarks.run', *arguments],
    cwd=programs.ROOT,
    env={**os.environ, 'TMPDIR': str(tmp_path), 'TF_CPP_MIN_LOG_LEVEL': '3'},
    stdout=subprocess.PIPE,
    text=True,
  )


@pytest.mark.verify
def test_all_contenders_reach_the_same_weights_and_are_timed(
  measured, tmp_path
):
  out = tmp_path / 'rows.json'
  printed = measured(
    'run',
    *('--cases=tiny,tiny_ifca', '--rounds=2', f'--out={out}'),
    '--contenders=vectorized,tff,tff_stock,floor_tensorflow',
  )
  rows = json.loads(out.read_text())
  assert [(row['case'], row['contender']) for row in rows] == [
    ('tiny', 'vectorized'),
    ('tiny', 'tff'),
    ('tiny', 'tff_stock'),
    ('tiny', 'floor_tensorflow'),
    ('tiny_ifca', 'vectorized'),
    ('tiny_ifca', 'tff'),
    ('tiny_ifca', 'floor_tensorflow'),
  ]
  for row in rows:
    assert row['contender'] in printed
    assert row['difference'] < 1e-4
    assert len(row['samples']) == 2
    assert 0 < row['min_seconds'] <= row['seconds_per_round']
    assert 0 < row['compile_seconds']
    assert 50 < row['peak_memory_mib']
  assert rows[0]['ratio_to'] == 'floor_tensorflow/fed_avg/6'
  assert rows[-2]['ratio_to'] == 'floor_tensorflow/ifca/8'
  assert set(rows[-1]['form']) == {'loops', 'clients_per_block'}


@pytest.mark.slow
@pytest.mark.parametrize('peer', cases.PEERS)
def test_peer_reaches_the_same_weights(tmp_path, peer):
  if not os.path.exists(registry.CONTENDERS[peer].python):
    pytest.skip(f'{peer} has no environment; `make bench-peers` makes it')
  out = tmp_path / 'rows.json'
  # In /tmp: Ray's sockets need a short path.
  program = _start(
    '/tmp',
    *('--cases=tiny,tiny_lin,tiny_cnn', '--rounds=1', f'--out={out}'),
    f'--contenders=floor_tensorflow,{peer}',
  )
  program.communicate(timeout=_PATIENCE_SECONDS)
  assert program.returncode == 0
  rows = [
    row for row in json.loads(out.read_text()) if row['contender'] == peer
  ]
  assert [row['case'] for row in rows] == ['tiny', 'tiny_lin', 'tiny_cnn']
  for row in rows:
    assert 0 < row['difference'] < 1e-4
    assert 0 < row['seconds_per_round']


@pytest.mark.verify
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_stopped(tmp_path, signum):
  program = _start(tmp_path, '--cases=tiny', '--contenders=tff', '--rounds=999')

  def children():
    found = psutil.Process(program.pid).children(recursive=True)
    return found if 'worker_binary' in [one.name() for one in found] else []

  seen = patience.until(lambda: children(), _PATIENCE_SECONDS, [program])
  program.send_signal(signum)
  program.communicate(timeout=_PATIENCE_SECONDS)
  assert program.returncode == 130
  _, alive = psutil.wait_procs(seen, timeout=10)
  assert all(child.status() == psutil.STATUS_ZOMBIE for child in alive)
  assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    ('--cases=mlp100,mlp', "no case is called 'mlp'; there are: mlp100, "),
    ('--contenders=tf', "no contender is called 'tf'; there are: vectorized"),
    ('--rounds=0', "must be an integer >= 1, got '0'"),
  ],
)
def test_wrong_argument_is_refused(argument, words, capsys):
  with pytest.raises(SystemExit):
    run.main([argument])
  assert words in capsys.readouterr().err


def test_a_case_that_fails_ends_no_other(monkeypatch, capsys):
  ran = []

  def run_case(case, **options):
    ran.append(case.name)
    if case.name == 'mlp100':
      raise errors.BenchmarkError('only 419 clients have answered')
    return []

  monkeypatch.setattr(run.harness, 'run_case', run_case)
  assert run.main(['--cases=mlp100,tiny']) == 1
  assert ran == ['mlp100', 'tiny']
  assert 'mlp100: only 419 clients' in capsys.readouterr().err


def test_contenders_of_no_case_are_told_and_nothing_is_overwritten(
  tmp_path, capsys
):
  out = tmp_path / 'rows.json'
  out.write_text('earlier')
  arguments = ['--cases=tiny', '--contenders=tf_data', f'--out={out}']
  assert run.main(arguments) == 1
  assert 'none of the contenders takes part' in capsys.readouterr().err
  assert out.read_text() == 'earlier'
