"""Evaluation as a program."""

import json
import shutil

import pytest

from tff_algos.core import sealed_json


def test_the_program_prints_the_summary(launcher, finished_run):
  program = launcher.run(
    'tests.testing.unrendered',
    'binaries.evaluate',
    '--config=configs/fed_soft/digits.py:smoke',
    f'--workdir={finished_run.folder}',
    '--round=3',
    '--clock=training=0.2',
  )
  assert program.returncode == 0, program.stderr
  assert 'best cluster on held-out upright' in program.stdout
  assert not program.complaints
  index = f'{finished_run.folder}/report/index.html'
  assert program.said[-1].endswith(f'Report: {index}')
  assert not program.temporary_files() and not program.processes()


@pytest.mark.slow
def test_the_best_round(launcher, trained_regressions, tmp_path):
  """Round 1 is made the best of two."""
  folder = tmp_path / 'run'
  shutil.copytree(trained_regressions.folder, folder)
  path = folder / 'checkpoints' / 'round_000002' / 'checkpoint.json'
  content = json.loads(path.read_text())
  content['progress'] |= {'best_round': 1, 'num_since': 1}
  path.write_text(json.dumps(sealed_json.seal(content)))

  def evaluate(choice):
    return launcher.run(
      'tests.testing.unrendered',
      'binaries.evaluate',
      '--config=configs/fed_soft/synthetic.py:smoke',
      '--config.algorithm.local_training.num_local_epochs=2',
      '--config.runtime.name=debug',
      f'--workdir={folder}',
      f'--round={choice}',
    )

  program = evaluate('best')
  assert program.returncode == 0, program.stderr
  summary = json.loads((folder / 'evaluation' / 'summary.json').read_text())
  assert summary['last']['round'] == 1
  program = evaluate('newest')
  assert program.returncode == 1
  assert (
    "round must be the number of a round, 'last' or 'best', got"
    in program.said[-1]
  )
