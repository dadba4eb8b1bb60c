"""Clients and how often they were averaged, bin by bin, counted by hand."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.reports.plotting import style
from tff_algos.reports.run import committee_history
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import committee_bins_plot


def _draw(run):
  with style.applied():
    return committee_bins_plot.draw(run)


def _heights(container):
  return [bar.get_height() for bar in container]


# Who is poorly served, who well, and who cannot be told.
_ACCURACIES = {'a': '0.3', 'b': '0.35', 'c': '0.99', 'd': '1.0', 'e': ''}


@pytest.fixture
def workdir(tmp_path):
  """Four rounds that average the least similar, a and b, c once and d never."""
  fake_workdir.write(tmp_path, num_clusters=1, num_rounds=2)
  rows = [
    f'{name},participating,{accuracy}' for name, accuracy in _ACCURACIES.items()
  ]
  (tmp_path / 'evaluation' / 'clients.csv').write_text(
    '\n'.join(
      ['client_id,group,test_personalized_accuracy', *rows, 'u,unseen,0.7\n']
    )
  )
  log = audit_log.AuditLog(tmp_path)
  for round_num, selected in enumerate(
    (['a', 'b'], ['a', 'e'], ['a', 'c'], ['a', 'b']), start=1
  ):
    clients = [
      {'id': one, 'is_member': False, 'is_valid': True, 'distance': 1.0}
      for one in selected
    ]
    log.append(
      {
        'round': round_num,
        'committee': ['d'],
        'clients': clients,
        'selected': selected,
        'vote': {'is_accepted': 1.0},
      },
      {},
    )
  return tmp_path


def test_low_bins_are_averaged_more_often_by_strategy_two(workdir):
  """a 4 times and b twice are of 30 to 40 %; c once and d never of the last."""
  clients, averages = _draw(run_lib.read(workdir)).axes
  averaged, never = clients.containers
  assert _heights(averaged) == [0, 0, 0, 2, 0, 0, 0, 0, 0, 1]
  assert _heights(never) == [0] * 9 + [1]
  assert never[9].get_y() == 1
  (means,) = averages.containers
  assert _heights(means) == [0, 0, 0, 3, 0, 0, 0, 0, 0, 0.5]
  assert clients.get_title('left') == '4 clients'
  assert averages.get_title('left') == 'mean of all clients: 1.75'


def test_bins_hold_all_clients_and_all_times(tmp_path):
  run = fake_workdir.read(tmp_path)
  clients, averages = _draw(run).axes
  sizes = np.sum([_heights(part) for part in clients.containers], axis=0)
  assert sizes.sum() == 24
  accuracy = run.clients.numbers('test_personalized_accuracy')[:24]
  np.testing.assert_array_equal(
    sizes, np.histogram(accuracy, np.linspace(0, 1, 11))[0]
  )
  times = committee_history.read(run).num_averaged
  (means,) = averages.containers
  np.testing.assert_allclose(sizes @ _heights(means), times.sum())
