"""The simulated fortnight: what the nights release, and who serves well."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from configs import fortnight as fortnight_config
from docs.examples import fortnight, fortnight_nights
from tff_algos.experiments import session
from tff_algos.experiments.production import gate_record
from tff_algos.export import releases
from tff_algos.reports.plotting import style
from tff_algos.training import continuation

_NIGHTS = range(1, fortnight.NUM_DAYS + 1)
_NOT_RELEASED = {9: 'not_approved', 11: 'no_new_data', 12: 'bad_input'}


def _night(day, policy=fortnight_nights.CONTINUED, seed=0, **values):
  defaults = {'status': 'released', 'version': day, 'accuracy': 0.5}
  return fortnight_nights.Night(
    'ifca', seed, day, policy, **(defaults | values)
  )


def _all_nights(**values):
  return [
    _night(day, policy, **values)
    for day in _NIGHTS
    for policy in fortnight_nights.POLICIES
  ]


def test_config_reads_the_columns_and_classes_of_the_files():
  options = fortnight_config.get_config('ifca', 'full').dataset.source.options
  assert tuple(options.feature_columns) == fortnight.FEATURES
  assert tuple(options.classes) == fortnight.CLASSES
  columns = (options.client_column, options.time_column, options.label_column)
  assert {*columns, *fortnight.FEATURES} == {*fortnight.COLUMNS}


def test_tables_have_means_over_seeds_and_say_what_was_not_released():
  nights = [
    *_all_nights(accuracy=0.5, seconds=3.0, downlink_floats=1000),
    *_all_nights(accuracy=0.9, seconds=5.0, downlink_floats=3000, seed=1),
  ]
  nights = [
    one._replace(status='not_approved')
    if (one.day, one.policy, one.seed) == (9, 'continued', 1)
    else one
    for one in nights
  ]
  heading, _, *lines = fortnight_nights.table(nights).splitlines()
  assert heading == '| day | status | ifca continued | ifca anew | ifca never |'
  assert lines[0] == '| 1 | released | 70.0 | 70.0 | 70.0 |'
  assert lines[8] == '| 9 | not_approved, released | 70.0 | 70.0 | 70.0 |'
  lines = fortnight_nights.costs(nights).splitlines()
  # 14 nights of 4 seconds and 2,000 numbers.
  assert lines[2] == '| ifca | continued | 13.5 | 0.5 | 70.0 | 56 | 28 | 0 |'
  assert lines[3] == '| ifca | anew | 14 | 0 | 70.0 | 56 | 28 | 0 |'


def test_picture_has_a_line_for_each_policy_with_the_range_of_the_seeds():
  nights = [
    *_all_nights(accuracy=0.5),
    *_all_nights(accuracy=0.9, seed=1),
  ]
  with style.applied():
    (axes,) = fortnight_nights.draw(nights).axes
  lines = [line for line in axes.lines if len(line.get_xdata()) == 14]
  assert len(lines) == 3
  np.testing.assert_allclose(lines[0].get_ydata(), 0.7)
  heights = axes.collections[0].get_paths()[0].vertices[:, 1]
  assert (heights.min(), heights.max()) == pytest.approx((0.5, 0.9))


def test_results_on_disk_are_read_again_and_not_run_again(tmp_path):
  nights = _all_nights(seconds=0.25)
  folder = tmp_path / 'ifca' / '0'
  fortnight_nights.write(folder, nights)
  before = (folder / fortnight_nights.TABLE).stat().st_mtime_ns
  fortnight_nights.run('ifca', folder, 0)
  assert (folder / fortnight_nights.TABLE).stat().st_mtime_ns == before
  assert fortnight_nights.read(tmp_path) == nights


class _Lived(NamedTuple):
  opened: fortnight_nights.Fortnight
  nights: dict


@pytest.fixture(scope='module')
def lived(tmp_path_factory):
  """IFCA's fortnight; (day, policy) -> `Night`."""
  policies = (fortnight_nights.CONTINUED, fortnight_nights.NEVER)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(style, 'to_png', lambda figure: b'')  # Takes most of a page.
    opened = fortnight_nights.Fortnight(
      'ifca', tmp_path_factory.mktemp('nights'), 0, policies
    )
    nights = [night for day in _NIGHTS for night in opened.run(day)]
  return _Lived(opened, {(one.day, one.policy): one for one in nights})


def _run(lived, day):
  return lived.opened.production / 'runs' / fortnight.date_of(day)


def _state(lived, day, client_id, *, last):
  """Returns a client's membership at the start or the end of a night."""
  with session.open_session(lived.opened.config, _run(lived, day)) as opened:
    rounds = opened.checkpoints.rounds()
    opened.restore(rounds[-1] if last else opened.parent.round_num)
    index = opened.source.population.client_ids.index(client_id)
    return np.asarray(opened.store.load(np.array([index])).membership)[0]


@pytest.mark.verify
def test_nights_end_as_their_days_demand(lived):
  found = {day: lived.nights[day, 'continued'].status for day in _NIGHTS}
  assert found == {day: _NOT_RELEASED.get(day, 'released') for day in _NIGHTS}


@pytest.mark.verify
def test_served_versions_change_on_released_nights_alone(lived):
  version, versions = 0, {}
  for day in _NIGHTS:
    version += day not in _NOT_RELEASED
    versions[day] = lived.nights[day, 'continued'].version, version
  assert all(found == expected for found, expected in versions.values())
  assert lived.nights[14, 'never'].version == 1
  history = releases.read_history(lived.opened.production / 'export')
  assert [one.run[-2:] for one in history] == [
    f'{day:02d}' for day in _NIGHTS if day not in _NOT_RELEASED
  ]


@pytest.mark.verify
def test_gate_refuses_what_was_trained_on_permuted_labels(lived):
  record = gate_record.read(_run(lived, 9))
  assert not record.blessed
  overall = {group.name: group for group in record.groups}['overall']
  assert overall.result == 'refused'
  assert overall.candidate < 0.2 < 0.7 < overall.champion
  # Nothing continues the refused run.
  assert continuation.read_parent(_run(lived, 10)).workdir == '../2026-11-08'


@pytest.mark.verify
def test_returning_clients_have_their_states_and_newcomers_have_none(lived):
  parent = json.loads((_run(lived, 10) / 'parent.json').read_text())
  assert (parent['returned'], parent['joined']) == (3, 0)
  for cluster in range(fortnight.NUM_CLUSTERS):
    # The last night with rows of day 3, their last one.
    left = _state(lived, 6, f'c{cluster}_00', last=True)
    assert left.sum() == 1
    returned = _state(lived, 10, f'c{cluster}_00', last=False)
    np.testing.assert_array_equal(returned, left)
    newcomer = _state(lived, 8, f'c{cluster}_12', last=False)
    np.testing.assert_array_equal(newcomer, np.zeros(4))


@pytest.mark.verify
def test_continued_training_serves_better_than_none(lived):
  accuracy = {key: night.accuracy for key, night in lived.nights.items()}
  assert accuracy[1, 'continued'] == accuracy[1, 'never']
  for day in (13, 14):
    assert accuracy[day, 'continued'] >= accuracy[day, 'never'] + 0.3
  # The poisoned night cost nothing.
  assert accuracy[9, 'continued'] > 0.8
