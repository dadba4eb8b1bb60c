"""Losses of cluster models, against squared distances of points by hand."""

import numpy as np
import pytest

from tests.testing import points
from tff_algos.algorithms import ifca
from tff_algos.evaluation import cluster_losses
from tff_algos.runtimes import debug_runtime

# The second client has no example.
_CLIENTS = ([[0, 1], [0, 3]], np.zeros((0, 2)), [[8, 1]])


@pytest.mark.parametrize(
  ('second', 'clients', 'losses'),
  [
    ([8, 0], [0, 1], [[5, 69], [np.inf, np.inf]]),
    ([np.nan, 0], [2], [[65, np.inf]]),
  ],
)
def test_losses_are_infinite_where_there_are_none(second, clients, losses):
  source = points.clients([np.array(one, float) for one in _CLIENTS])
  algorithm = ifca.build_ifca(points.model(2), ifca.IfcaConfig(cohort_size=1))
  models = np.array([[0, 0], second], np.float32)
  with debug_runtime.DebugRuntime(algorithm, len(_CLIENTS)) as runtime:
    found = cluster_losses.of_clients(
      algorithm,
      runtime,
      ifca.ServerState({'point': models}),
      source,
      np.array(clients, np.int32),
    )
  assert found.dtype == np.float64
  np.testing.assert_allclose(found, losses, rtol=1e-6)
