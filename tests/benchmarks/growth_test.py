import json

import pytest

from benchmarks.growth import curves, run


def test_slope_is_of_the_two_largest_sizes():
  rows = [
    {'num_clients': 10**k, 'linear': 3.0 * 10**k, 'late': 1.0 + (k == 4)}
    for k in (2, 3, 4)
  ]
  linear, late = curves.collect(
    rows, {'linear': 'memory, MiB', 'late': 'time'}, 'clients'
  )
  assert linear.slope == pytest.approx(1)
  assert late.slope == pytest.approx(0.30103)
  assert linear.file_name == 'memory_MiB.png'
  assert curves.table([linear, late]).splitlines() == [
    '| clients | 100 | 1,000 | 10,000 | slope |',
    '| --- | --- | --- | --- | --- |',
    '| memory, MiB | 300 | 3e+03 | 3e+04 | 1.00 |',
    '| time | 1 | 1 | 2 | 0.30 |',
  ]


@pytest.mark.parametrize('sizes', ['100', '100,10', '19,20', '20,many'])
def test_sizes_are_two_or_more_ascending_numbers(sizes, capsys):
  with pytest.raises(SystemExit):
    run.main([f'--clients={sizes}'])
  assert 'argument --clients: must be' in capsys.readouterr().err


@pytest.mark.verify
def test_curves_are_measured(measured, tmp_path):
  out = tmp_path / 'out'
  printed = measured('growth.run', '--clients=20,40', f'--out={out}')
  rows = json.loads((out / 'growth.json').read_text())
  assert [row['num_examples'] for row in rows] == [200, 400]
  # A state is 16 x 10 weights and 10 biases, float32.
  states = 680 * 20 / 2**20
  grown = rows[1]['disk/all_states_mib'] - rows[0]['disk/all_states_mib']
  assert grown == pytest.approx(states, rel=0.2)
  assert len(list(out.glob('*.png'))) == 19
  assert '| evaluation, peak MiB |' in printed
