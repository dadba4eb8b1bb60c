"""Every night with Apache Airflow: from raw data to the release.

Copy this file into the folder of DAGs of Airflow 2.4 or newer, with Python 3.11
or newer, and set the four paths. All that Airflow's worker needs is the project
with its environment (`make env`), which is not Airflow's own.
"""

import datetime
import json
import subprocess

from airflow.decorators import dag, task
from airflow.exceptions import (
  AirflowException,
  AirflowFailException,
  AirflowSkipException,
)

PROJECT = '/opt/tff_algos'
PYTHON = f'{PROJECT}/.venv/bin/python'
CONFIG = 'configs/ifca/fortnight.py'
WORKDIR = '/data/production'

# Each task continues the night up to the end of its step.
STEPS = ('dataset', 'drift', 'train', 'gate', 'release')
# Exit codes of binaries.nightly: see docs/production.md.
SUCCESS, NOT_APPROVED, INFRASTRUCTURE = 0, 3, 75
NO_NEW_DATA = 'no_new_data'


def run_until(step, ds=None):
  """Continues the night of a logical date; what is done is not done again.

  Args:
    step: The last step to do, one of `STEPS`.
    ds: The logical date, such as '2026-11-20'; Airflow passes it by its name.

  Returns:
    The JSON object that the program prints, for later tasks.
  """
  command = [
    *(PYTHON, '-m', 'binaries.nightly'),
    f'--config={CONFIG}',
    f'--workdir={WORKDIR}',
    f'--as_of={ds}',
    f'--until={step}',
    '--keep_versions=30',
  ]
  code, stdout, last_line = _run(command)
  result = json.loads(stdout or '{}')
  if code == SUCCESS:
    if result.get('status') == NO_NEW_DATA:
      raise AirflowSkipException(f'{ds} has no new data')
    return result
  reason = result.get('message', last_line)
  if code == INFRASTRUCTURE:
    raise AirflowException(reason)  # Airflow tries again.
  if code == NOT_APPROVED:
    raise AirflowFailException(f'NOT APPROVED, a person decides: {reason}')
  raise AirflowFailException(f'exit code {code}: {reason}')


def _run(command):
  """Runs a program with its log in the task's; ends it if the task is ended.

  Returns:
    Its exit code, its standard output and the last line of its log.
  """
  program = subprocess.Popen(
    command,
    cwd=PROJECT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  with program:
    try:
      line = ''
      for line in program.stderr:
        print(line, end='')
      stdout = program.stdout.read()
    except BaseException:
      program.terminate()
      raise
  return program.returncode, stdout, line.strip()


@dag(
  schedule='@daily',
  start_date=datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC),
  catchup=False,
  max_active_runs=1,
  default_args={
    'retries': 3,
    'retry_delay': datetime.timedelta(minutes=10),
  },
)
def every_night():
  """A chain of tasks, one a step."""
  previous = None
  for step in STEPS:
    current = task(task_id=step)(run_until)(step)
    if previous is not None:
      previous >> current
    previous = current


every_night()
