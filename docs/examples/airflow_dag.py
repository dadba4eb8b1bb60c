"""Builds a federated dataset every day, with Apache Airflow 2.4 or newer.

Copy this file into Airflow's folder of DAGs and set the four paths. All that
Airflow's worker needs is the project with its environment (`make env`), which
is not Airflow's own.
"""

import datetime
import json
import subprocess

from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException

PROJECT = '/opt/tff_algos'
PYTHON = f'{PROJECT}/.venv/bin/python'
CONFIG = 'configs/fed_soft/digits.py'
WORKDIR = '/data/digits'

# Exit codes of binaries.preprocess: see docs/data_engineering.md.
SUCCESS, INFRASTRUCTURE = 0, 75


def preprocess(ds=None):
  """Builds the dataset of a logical date; a rerun of it finds what is there.

  Args:
    ds: The logical date, such as '2026-11-20'; Airflow passes it by its name.

  Returns:
    What the program says, for later tasks: version, path, numbers of clients
    and examples, and so on.
  """
  program = subprocess.run(
    [
      *(PYTHON, '-m', 'binaries.preprocess'),
      f'--config={CONFIG}',
      f'--workdir={WORKDIR}',
      f'--as_of={ds}',
      '--keep_versions=30',
    ],
    cwd=PROJECT,
    stdout=subprocess.PIPE,
    text=True,
  )
  if program.returncode == SUCCESS:
    return json.loads(program.stdout)
  reason = program.stdout.strip() or f'exit code {program.returncode}'
  if program.returncode == INFRASTRUCTURE:
    raise AirflowException(reason)  # Airflow tries again.
  raise AirflowFailException(reason)  # It would fail again.


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
def federated_dataset():
  """One task; training on what it returns would be the next."""
  task(preprocess)()


federated_dataset()
