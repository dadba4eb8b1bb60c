"""The whole chain as one program: what it prints and leaves behind."""

import re


def test_it_prints_a_summary_a_served_prediction_and_where_all_lies(
  finished_run,
):
  said = finished_run.program.stdout
  assert 'personalized models' in said
  assert re.search(
    r'Asked over HTTP, the model of client client_00000 says \d for an example '
    r'whose label is \d\.',
    said,
  )
  for name in ('dataset', 'metrics.csv', 'checkpoints', 'report/index.html'):
    assert f'{finished_run.folder}/{name}' in said
  for model in ('cluster_models', 'personalized_models'):
    assert f'{finished_run.folder}/export/{model}/1' in said


def test_it_shows_steps_and_progress_and_nothing_else_on_stderr(finished_run):
  steps = [line for line in finished_run.program.said if '/5 ' in line]
  assert len(steps) == 5
  assert 'round/s' in finished_run.program.stderr
  assert 'Traceback' not in finished_run.program.stderr
  assert 'Warning' not in finished_run.program.stderr


def test_nothing_is_left_behind(finished_run):
  assert not finished_run.program.processes()
  assert not finished_run.program.temporary_files()
  assert not (finished_run.folder / '.lock').exists()
  assert not [
    path for path in finished_run.folder.rglob('*') if 'writing' in path.name
  ]
