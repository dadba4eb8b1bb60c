import contextlib
import json
import threading

import pytest

from benchmarks import serving


def test_known_clients_were_asked_before_the_clock(monkeypatch):
  asked = []

  @contextlib.contextmanager
  def rest(server, path):
    def ask(content):
      (row,) = json.loads(content)['instances']
      if 'personalized' in path:
        asked.append((threading.get_ident(), row['client_id']))

    yield ask

  monkeypatch.setattr(serving.clients_lib, 'rest', rest)
  figures = serving._ask(None, 40, 60.0)
  before, timed = asked[:20], asked[20:]
  known = {client for _, client in before}
  assert (
    len(known) == figures['new_requests'] == figures['known_requests'] == 20
  )
  new = set()
  for thread in {one for one, _ in timed}:
    clients = [client for one, client in timed if one == thread]
    assert known >= set(clients[1::2])
    new |= set(clients[::2])
  assert len(new) == 20 and not new & known


@pytest.mark.verify
def test_server_is_measured(measured, tmp_path):
  out = tmp_path / 'row.json'
  printed = measured('serving', '--clients=300', '--seconds=2', f'--out={out}')
  row = json.loads(out.read_text())
  assert json.loads(printed) == row
  # 300 states of 9,610 weights.
  assert 11 < row['bundle_mib'] < 12
  # Each client at most once, and none of the known ones; each kind as often as
  # the others.
  assert 0 < row['new_requests'] <= 200
  assert (
    row['new_requests'] == row['known_requests'] == row['resident_requests']
  )
  assert row['new_ratio'] * row['resident_p50_ms'] == pytest.approx(
    row['new_p50_ms']
  )
  # More than TensorFlow alone takes.
  assert row['server_peak_mib'] > 200
  assert row['large_requests_peak_mib'] > 200
