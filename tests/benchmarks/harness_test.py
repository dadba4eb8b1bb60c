import itertools

import numpy as np
import psutil
import pytest

from benchmarks import cases as cases_lib
from benchmarks import errors, harness, report
from benchmarks import workload as workload_lib
from benchmarks.contenders import registry

_WORKLOAD = workload_lib.Workload(
  model='linear', num_clients=2, num_examples=4, batch_size=2, input_shape=(3,)
)


@pytest.fixture
def counting(monkeypatch):
  """Registers contenders that count, each with forms of its own."""

  def register(**forms):
    contenders = {
      name: registry.Contender(
        'tests.testing.counting_contender', scouts=tuple(scouts)
      )
      for name, scouts in forms.items()
    }
    monkeypatch.setattr(registry, 'CONTENDERS', contenders)
    return cases_lib.Case(
      'counting',
      tuple(
        cases_lib.Entry(name, _WORKLOAD, 0, 2.0 if i else None)
        for i, name in enumerate(forms)
      ),
    )

  before = psutil.Process().children(recursive=True)
  yield register
  assert psutil.Process().children(recursive=True) == before


def test_rows_of_contenders_that_agree(counting):
  case = counting(one=[{'step': 1}], other=[{'step': 1, 'dies_at': 99}])
  rows = harness.run_case(case, num_rounds=3)
  assert [row['contender'] for row in rows] == ['one', 'other']
  for row in rows:
    assert row['difference'] == 0
    assert len(row['samples']) == 3
    assert row['seconds_per_round'] == sorted(row['samples'])[1]
    assert row['min_seconds'] == min(row['samples'])
    assert row['peak_memory_mib'] > 1
    assert row['compile_seconds'] > 0
    assert row['ratio_to'] == 'one/fed_avg/2'
  assert rows[0]['ratio'] == 1
  seconds = [row['seconds_per_round'] for row in rows]
  assert rows[1]['ratio'] == seconds[1] / seconds[0]
  assert '| counting | other ' in report.table(rows)


def test_other_weights_are_refused_before_anything_is_timed(counting):
  case = counting(one=[{'step': 1}], other=[{'step': 1.001, 'dies_at': 3}])
  with pytest.raises(
    errors.BenchmarkError, match='other/fed_avg/2 and one/fed_avg/2 compute'
  ):
    harness.run_case(case)


def test_failure_of_a_contender_is_told_in_its_words(counting):
  case = counting(one=[{'step': 1}], other=[{'step': 1, 'dies_at': 4}])
  with pytest.raises(errors.BenchmarkError, match="(?s)'round'.*my last words"):
    harness.run_case(case)


def test_fastest_form_of_all_scouts_gets_the_row(counting):
  # The form that a scout found slower dies at once, and so was not started.
  case = counting(
    one=[{'step': 1, 'sleep': 0.3}, {'step': 1}, {'step': 1, 'sleep': 0.2}]
  )
  (row,) = harness.run_case(case, num_rounds=1)
  assert row['form'] == {'step': 1}


def test_fastest_of_fixed_forms_gets_the_row(counting, monkeypatch):
  case = counting(one=[])
  one = registry.CONTENDERS['one']._replace(
    forms=({'step': 1, 'sleep': 0.3}, {'step': 1})
  )
  monkeypatch.setitem(registry.CONTENDERS, 'one', one)
  (row,) = harness.run_case(case, num_rounds=1)
  assert row['form'] == {'step': 1}


def test_memory_of_children_counts(counting):
  case = counting(one=[{'step': 1}], other=[{'step': 1, 'child_mib': 300}])
  rows = harness.run_case(case, num_rounds=1)
  one, other = (row['peak_memory_mib'] for row in rows)
  assert 300 < other - one < 400


def test_contender_without_its_environment_is_left_out(counting, monkeypatch):
  case = counting(one=[{'step': 1}], absent=[{'step': 1}])
  absent = registry.CONTENDERS['absent']._replace(python='/no/python')
  monkeypatch.setitem(registry.CONTENDERS, 'absent', absent)
  rows = harness.run_case(case, num_rounds=1)
  assert [row['contender'] for row in rows] == ['one']


def test_ratio_is_left_out_with_its_measure(counting):
  case = counting(one=[{'step': 1}], other=[{'step': 1}])
  (row,) = harness.run_case(case, contenders=['other'], num_rounds=1)
  assert row['ratio'] is None
  assert row['ratio_to'] is None


@pytest.mark.parametrize(
  ('weights', 'expected'),
  [
    ({'a': np.array([1.0, 3.0])}, 0.0),
    ({'a': np.array([1.0, 3.5])}, 0.25),
    ({'a': np.array([np.nan, 3.0])}, np.nan),
    ({'b': np.array([1.0, 3.0])}, np.inf),
    ({'a': np.array([[1.0, 3.0]])}, np.inf),
  ],
)
def test_difference_is_a_share_of_the_largest_change(weights, expected):
  reference = {'a': np.array([1.0, 3.0])}
  initial = {'a': np.array([1.0, 1.0])}
  found = harness._difference(weights, reference, initial)
  np.testing.assert_equal(found, expected)


@pytest.mark.parametrize('count', [2, 4, 6])
def test_everyone_follows_everyone_once(count):
  orders = [harness._turns(count, round_num) for round_num in range(count)]
  assert all(sorted(order) == list(range(count)) for order in orders)
  pairs = [pair for order in orders for pair in itertools.pairwise(order)]
  assert len(set(pairs)) == len(pairs) == count * (count - 1)
