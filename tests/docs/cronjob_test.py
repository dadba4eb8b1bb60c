"""The example CronJob and the line of cron: what their schedulers need."""

import re
import shlex

import pytest
import yaml

from binaries import command
from tests.testing import programs

_FILE = programs.ROOT / 'docs' / 'examples' / 'cronjob.yaml'


@pytest.fixture(scope='module')
def manifest():
  (found,) = yaml.safe_load_all(_FILE.read_text())
  return found


@pytest.fixture
def job(manifest):
  return manifest['spec']['jobTemplate']['spec']


def test_one_night_at_a_time_that_ends_on_its_date(manifest, job):
  assert (manifest['apiVersion'], manifest['kind']) == ('batch/v1', 'CronJob')
  spec = manifest['spec']
  minute, hour, *others = spec['schedule'].split()
  assert others == ['*', '*', '*'] and spec['timeZone'] == 'Etc/UTC'
  start = 3600 * int(hour) + 60 * int(minute)
  assert start + job['activeDeadlineSeconds'] < 24 * 3600
  assert spec['concurrencyPolicy'] == 'Forbid'


def test_infrastructure_errors_alone_are_tried_again(job):
  # Kubernetes demands this of a podFailurePolicy.
  assert job['template']['spec']['restartPolicy'] == 'Never'
  assert job['backoffLimit'] > 0
  (codes,) = (
    rule['onExitCodes']
    for rule in job['podFailurePolicy']['rules']
    if rule['action'] == 'FailJob'
  )
  assert codes['operator'] == 'In'
  assert codes['values'] == [command.BAD_INPUT, command.NOT_APPROVED]
  assert command.INFRASTRUCTURE not in codes['values']


def test_its_command_is_a_night_on_the_volume(job, launcher):
  pod = job['template']['spec']
  (container,) = pod['containers']
  assert container['command'] == ['/bin/sh', '-c']
  (text,) = container['args']
  words = shlex.split(text.replace('$(date -u +%F)', '2026-11-20'))
  assert words[:4] == ['exec', '.venv/bin/python', '-m', 'binaries.nightly']
  help_text = launcher.run('binaries.nightly', '--help').stdout
  flags = dict(word.removeprefix('--').split('=') for word in words[4:])
  for name in flags:
    assert f'--{name}:' in help_text
  assert (programs.ROOT / flags['config']).exists()
  (mount,) = container['volumeMounts']
  (volume,) = pod['volumes']
  assert mount['name'] == volume['name']
  assert flags['workdir'].startswith(f'{mount["mountPath"]}/')


def test_line_of_cron_escapes_percents_and_logs_beside_the_workdir():
  page = (programs.ROOT / 'docs' / 'production.md').read_text()
  (line,) = re.findall(r'^15 2 \* \* \* .*', page, re.MULTILINE)
  assert r'$(date +\%F)' in line
  assert not re.search(r'(?<!\\)%', line)  # cron's line break.
  (workdir,) = re.findall('--workdir=(.*?) ', line)
  logs = re.findall('2?>>(.*?)(?= |$)', line)
  # The shell opens them before the first run has made the workdir.
  assert len(logs) == 2
  assert not [log for log in logs if log.startswith(f'{workdir}/')]
