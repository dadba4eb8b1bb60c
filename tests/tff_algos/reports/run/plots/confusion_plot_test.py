"""Clients by source and by cluster."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import confusion_plot


def _texts(axes, num_columns):
  texts = [text.get_text() for text in axes.texts]
  return np.array(texts).reshape(-1, num_columns).tolist()


def test_confusion_and_mean_membership(tmp_path):
  fake_workdir.write(tmp_path, num_clients=3, num_rounds=2)
  (tmp_path / 'evaluation' / 'clients.csv').write_text(
    'group,membership_0,membership_1,true_mixture_0,true_mixture_1\n'
    'participating,0.1,0.9,0.9,0.1\n'
    'participating,0.8,0.2,0.1,0.9\n'
    'participating,0.4,0.6,0.1,0.9\n'
    'unseen,1,0,0.9,0.1\n'
  )
  left, right = confusion_plot.draw(run_lib.read(tmp_path)).axes
  # Cluster 1 stands for upright and comes first.
  assert _texts(left, 2) == [['1', '0'], ['1', '1']]
  assert _texts(right, 2) == [['90', '10'], ['40', '60']]
  np.testing.assert_allclose(left.images[0].get_array(), [[1, 0], [0.5, 0.5]])


def test_source_without_clients_has_no_mean(tmp_path):
  run = fake_workdir.read(tmp_path, num_clients=1, num_rounds=2)
  _, right = confusion_plot.draw(run).axes
  assert _texts(right, 2)[1] == ['–', '–']


@pytest.mark.parametrize(
  'options',
  [
    {'num_clusters': 1},
    {'source_names': tuple(f'source_{i}' for i in range(17))},
  ],
)
def test_nothing_to_draw(tmp_path, options):
  run = fake_workdir.read(tmp_path, num_rounds=2, **options)
  assert confusion_plot.draw(run) is None
