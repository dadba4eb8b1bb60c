"""Client ids on an axis."""

import pytest

from tff_algos.reports.plotting import client_axis, style


@pytest.mark.parametrize('which', ['xaxis', 'yaxis'])
def test_clients_are_named_in_their_order(which):
  axis = getattr(style.new_figure(3, 'x').subplots(), which)
  client_axis.name(axis, ['b', 'a', 'c'])
  assert axis.get_ticklocs().tolist() == [0, 1, 2]
  assert [label.get_text() for label in axis.get_ticklabels()] == list('bac')


def test_of_many_clients_only_the_chosen_ones_are_named():
  axis = style.new_figure(3, 'x').subplots().xaxis
  ids = [f'c{index}' for index in range(client_axis.MAX_NAMES + 1)]
  client_axis.name(axis, ids)
  assert not axis.get_ticklocs().size
  client_axis.name(axis, ids, [0, 1])
  assert [label.get_text() for label in axis.get_ticklabels()] == ['c0', 'c1']


@pytest.mark.parametrize(
  ('ids', 'names'),
  [
    (['client_1', 'client_2'], ['client_1', 'client_2']),
    (['branch-07-of-the-north', 'branch-12-of-the-north'], ['…07…', '…12…']),
    (['a' * 17], ['a' * 15 + '…']),
    (['x' + 'a' * 20, 'y' + 'a' * 20], ['x…', 'y…']),
    (['a\nb'], ['a\N{REPLACEMENT CHARACTER}b']),
    ([], []),
  ],
)
def test_long_ids_lose_what_they_share(ids, names):
  assert client_axis.shortened(ids) == names
