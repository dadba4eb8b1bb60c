"""The access log, and names that become labels."""

import io
import json
import sys
import time
from concurrent import futures

import pytest

from tff_algos.serving import models, monitoring

CALL = monitoring.Call(
  'id-1',
  '10.0.0.1',
  'rest',
  'predict',
  'anna',
  1,
  '200',
  0.0123456789,
  'ops',
  "ops's laptop",
)


@pytest.fixture(name='store')
def make_store(export_folder):
  store = models.ModelStore(export_folder)
  store.get('anna')
  return store


def test_access_log(store, capfd):
  monitoring.Monitor(store, has_access_log=True).record(CALL)
  (line,) = capfd.readouterr().out.splitlines()
  entry = json.loads(line)
  assert entry.pop('time').endswith('+00:00')
  assert entry == {
    'request_id': 'id-1',
    'peer': '10.0.0.1',
    'api': 'rest',
    'method': 'predict',
    'model': 'anna',
    'version': '1',
    'status': '200',
    'seconds': 0.012346,
    'caller': 'ops',
    'certificate': "ops's laptop",
  }


def test_removed_models_have_no_version(store):
  monitor = monitoring.Monitor(store, has_access_log=False)
  assert b'tff_algos_model_version{model="anna"} 1.0' in monitor.text()
  store._loaded = {}
  assert b'model_version{' not in monitor.text()


def test_versions_that_are_not_loaded_any_more_have_no_series(
  store, monkeypatch
):
  """Once their counts have been there to be scraped for an hour."""
  now = 0.0
  monkeypatch.setattr(monitoring.time, 'monotonic', lambda: now)
  monitor = monitoring.Monitor(store, has_access_log=False)
  monitor.record(CALL)
  monitor.record(CALL._replace(status='404'))
  now = 3601.0
  monitor.record(CALL._replace(model='bob', version=None))
  assert monitor.text().count(b'requests_total{') == 3  # It may be asked again.
  store._loaded = {}
  now = 3602.0
  monitor.record(CALL)
  assert monitor.text().count(b'requests_total{') == 3
  now = 7203.0
  text = monitor.text()
  assert b'version="1"' not in text
  assert b'requests_total{api="rest",method="predict",model=""' in text
  monitor.record(CALL)
  assert b'version="1"} 1.0' in monitor.text()


def test_names_in_the_log_stay_within_a_line(store, capfd):
  monitor = monitoring.Monitor(store, has_access_log=True)
  monitor.record(CALL._replace(model='a\n"b' + 'c' * 1000))
  (line,) = capfd.readouterr().out.splitlines()
  assert json.loads(line)['model'] == 'a\n"b' + 'c' * 196


def test_lines_of_threads_do_not_run_into_each_other(store, monkeypatch):
  class Unbuffered(io.StringIO):
    def write(self, text):
      super().write(text)
      time.sleep(1e-3)  # Another thread's turn.

  monkeypatch.setattr(sys, 'stdout', Unbuffered())
  monitor = monitoring.Monitor(store, has_access_log=True)
  with futures.ThreadPoolExecutor(4) as threads:
    list(threads.map(monitor.record, [CALL] * 20))
  lines = sys.stdout.getvalue().splitlines()
  assert [json.loads(line)['request_id'] for line in lines] == ['id-1'] * 20


def test_without_access_log(store, capfd):
  monitor = monitoring.Monitor(store, has_access_log=False)
  monitor.record(CALL)
  monitor.record(CALL._replace(model='bob', version=None))
  monitor.record(CALL._replace(model='bob', version=None))
  assert not capfd.readouterr().out
  text = monitor.text().decode()
  assert 'model="anna",status="200",version="1"} 1.0' in text
  assert 'model="",status="200",version=""} 2.0' in text
  assert 'le="0.025"' in text


@pytest.mark.parametrize('given', [None, '', 'a b', 'a' * 65, 'ä', 'a\n'])
def test_ids_of_clients_are_plain_words(given):
  assert len(monitoring.request_id(given)) == 32
  assert monitoring.request_id('a.B_3-') == 'a.B_3-'
