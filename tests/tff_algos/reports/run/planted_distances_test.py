"""Total variation of memberships and planted mixtures, by hand."""

import shutil

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import planted_distances
from tff_algos.reports.run import run as run_lib


def _ends(workdir, **memberships):
  """Of the round 4 there is always something, so that it is kept."""
  fake_workdir.write_memberships(
    workdir, {int(name[1:]): rows for name, rows in memberships.items()}
  )
  return planted_distances.at_both_ends(run_lib.read(workdir))


def test_clusters_are_those_of_their_sources(tmp_path):
  """Clients hold 0.9 of one source. Cluster 1 stands for the first source."""
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  last = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.9, 0.1]])
  first, final = _ends(tmp_path, r0=np.full([4, 2], 0.5), r2=1 - last, r4=last)
  assert (first.round_num, final.round_num) == (0, 4)
  np.testing.assert_allclose(first.values, [0.4] * 4, rtol=1e-6)
  np.testing.assert_allclose(final.values, [0, 0.1, 0.2, 0], atol=1e-6)


@pytest.mark.parametrize(
  ('num_clusters', 'sources', 'spare'),
  [(3, ('a', 'b'), 1 / 3), (2, ('a', 'b', 'c'), None)],
)
def test_what_has_no_partner_counts_whole(
  tmp_path, num_clusters, sources, spare
):
  """Half of it on each side of the total variation of two distributions."""
  run = fake_workdir.read(
    tmp_path,
    num_clients=4,
    num_clusters=num_clusters,
    source_names=sources,
    num_rounds=2,
  )
  mixture, matched = run.memberships[1], run.matched_sources
  equal = np.full([4, num_clusters], 1 / num_clusters)
  (found,) = _ends(tmp_path, r2=equal)
  true = np.zeros((4, max(num_clusters, len(sources))))
  given = np.zeros_like(true)
  left = [s for s in range(len(sources)) if s not in matched]
  for column, source in enumerate([*matched, *left]):
    if column < num_clusters:
      given[:, column] = equal[:, column]
    if source >= 0:
      true[:, column] = mixture[:, source]
  np.testing.assert_allclose(
    found.values, 0.5 * np.abs(given - true).sum(axis=1), rtol=1e-6
  )
  if spare:
    assert found.values.min() >= spare / 2


def test_nothing_is_known_without_memberships_or_clusters(tmp_path):
  run = fake_workdir.read(tmp_path / 'one', num_clusters=1, num_rounds=2)
  assert planted_distances.at_both_ends(run) == ()
  fake_workdir.write(tmp_path / 'none', num_rounds=2)
  shutil.rmtree(tmp_path / 'none' / 'memberships')
  assert planted_distances.at_both_ends(run_lib.read(tmp_path / 'none')) == ()


def test_nothing_is_known_of_another_number_of_clients(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=2)
  assert _ends(tmp_path, r2=np.full([3, 2], 0.5)) == ()


def test_clients_without_a_membership_are_left_out(tmp_path):
  """Before the first estimate nobody has one, in round 2 two clients."""
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  half = np.array([[0.1, 0.9], [0.8, 0.2], [0, 0], [0, 0]])
  last = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0, 0]])
  first, final = _ends(tmp_path, r0=np.full([4, 2], 1e-4), r2=half, r4=last)
  assert (first.round_num, first.num_unsampled) == (2, 2)
  assert (final.round_num, final.num_unsampled) == (4, 1)
  np.testing.assert_allclose(first.values, [0, 0.1], atol=1e-6)
  np.testing.assert_allclose(final.values, [0, 0.1, 0.2], atol=1e-6)
  assert _ends(tmp_path, r0=np.zeros([4, 2]), r4=np.zeros([4, 2])) == ()
