"""The report as a whole: whole pictures, a page on its own, nothing left."""

import json
import pathlib
import shutil

import pytest

from tests.testing import fake_workdir, pages
from tff_algos.core import sealed_json
from tff_algos.reports.plotting import style
from tff_algos.reports.run import page
from tff_algos.reports.run import run as run_lib


def _contents(folder: pathlib.Path) -> dict[str, bytes]:
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope='module')
def reported(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  fake_workdir.write(workdir)
  (workdir / 'checkpoints').mkdir()
  return workdir, page.write_report(workdir)


def test_every_picture_is_whole_with_something_on_it(reported):
  workdir, index = reported
  assert index == workdir / 'report' / 'index.html'
  for picture in page.PICTURES:
    content = index.with_name(picture.name).read_bytes()
    height, width = pages.check_picture(content)
    assert height > 300
    # A page scales pictures to its own width: titles keep one size.
    assert width == 1500


def test_nothing_else_is_left(reported):
  workdir, index = reported
  names = {picture.name for picture in page.PICTURES} | {'index.html'}
  assert {path.name for path in index.parent.iterdir()} == names
  assert {path.name for path in workdir.iterdir()} == {
    *('config.json', 'metrics.csv', 'memberships', 'evaluation'),
    *('audit', 'checkpoints', 'report'),
    *('drift.json', 'drift_clients.csv'),
  }


def test_the_page_refers_only_to_files_that_are_there(reported):
  _, index = reported
  text = index.read_text()
  found = pages.Page(text)
  assert {picture.name for picture in page.PICTURES} <= {*found.references}
  for reference in found.references:
    assert (index.parent / reference).exists(), reference
  assert '../checkpoints' in found.references
  assert '../tensorboard' not in found.references
  for word in ('://', '@import', 'url('):
    assert word not in text
  assert 'script' not in found.tags


@pytest.mark.verify
def test_the_same_files_give_the_same_bytes(reported):
  workdir, index = reported
  before = _contents(index.parent)
  page.write_report(workdir)
  assert _contents(index.parent) == before


def test_the_same_run_gives_the_same_pictures(reported):
  """Every eighth picture: rendering all takes seconds."""
  workdir, index = reported
  run = run_lib.read(workdir)
  with style.applied():
    for picture in page.PICTURES[::8]:
      content = style.to_png(picture.draw(run))
      assert content == index.with_name(picture.name).read_bytes()


@pytest.mark.usefixtures('no_pixels')
def test_the_page_escapes_what_it_is_told(tmp_path):
  attack = '<script>alert("x")</script>'
  fake_workdir.write(
    tmp_path,
    num_rounds=2,
    source_names=(attack.replace('/', ''), '$b_{$'),
    config={'algorithm': {'name': attack, attack: [attack]}},
  )
  config = json.loads((tmp_path / 'config.json').read_text())
  config['name'] = attack
  sealed_json.write(tmp_path / 'config.json', config)
  text = page.write_report(tmp_path).read_text()
  assert '<script' not in text
  assert pages.Page(text).text.count(attack) >= 4


_OTHER_RUNS = [
  {'num_clusters': 1},
  {'num_clusters': 3, 'source_names': ('a', 'b', 'c', '$b_{$')},
  {'num_rounds': 0},
  {'num_clients': 100, 'score': 'mse'},
]


@pytest.mark.usefixtures('no_pixels')
@pytest.mark.parametrize('options', _OTHER_RUNS)
def test_other_runs_have_a_report_too(tmp_path, options):
  fake_workdir.write(tmp_path, **{'num_rounds': 4, **options})
  index = page.write_report(tmp_path)
  found = pages.Page(index.read_text())
  assert found.references
  for reference in found.references:
    assert (index.parent / reference).exists(), reference


@pytest.mark.verify
@pytest.mark.parametrize(
  'options',
  # The last has many of everything at once.
  [*_OTHER_RUNS, {**_OTHER_RUNS[1], **_OTHER_RUNS[3]}],
)
def test_nothing_is_cut_off_in_other_runs(tmp_path, options):
  fake_workdir.write(tmp_path, **{'num_rounds': 4, **options})
  for path in page.write_report(tmp_path).parent.glob('*.png'):
    pages.check_picture(path.read_bytes())


def test_missing_columns_drop_pictures_and_old_ones_go(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=4)
  (tmp_path / 'report').mkdir()
  (tmp_path / 'report' / 'cost.png').write_bytes(b'of an earlier run')
  for folder in ('memberships', 'audit'):
    shutil.rmtree(tmp_path / folder)
  for name in ('evaluation/atoms.csv', 'drift.json'):
    (tmp_path / name).unlink()
  (tmp_path / 'metrics.csv').write_text('round\n0\n1\n')
  (tmp_path / 'evaluation' / 'clients.csv').write_text(
    'client_id,group\nc0,participating\n'
  )
  summary = {'source_names': ['a'], 'num_clusters': 1, 'planted_names': None}
  sealed_json.write(tmp_path / 'evaluation' / 'summary.json', summary)
  index = page.write_report(tmp_path)
  assert set(_contents(index.parent)) == {'index.html'}


def _captions(workdir):
  run = run_lib.read(workdir)
  with style.applied():
    return {
      one.name: one.caption(run) if callable(one.caption) else one.caption
      for one in page.PICTURES
      if one.draw(run) is not None
    }


def test_captions_tell_only_of_what_is_there(tmp_path):
  """Without ground truth, and with one model, some words have no meaning."""
  truth = ('ground', 'true', 'matched', 'recovered', 'specialised')
  fake_workdir.write(tmp_path / 'planted', num_rounds=2)
  planted = ' '.join(_captions(tmp_path / 'planted').values())
  assert all(word in planted for word in truth)
  fake_workdir.write(tmp_path / 'natural', num_rounds=2, source_names=('all',))
  fake_workdir.forget_mixture(tmp_path / 'natural')
  metrics = tmp_path / 'natural' / 'metrics.csv'
  metrics.write_text(metrics.read_text().replace('membership/', 'gone/'))
  natural = _captions(tmp_path / 'natural')
  assert 'memberships.png' in natural and 'confusion.png' not in natural
  assert not [word for word in truth if word in ' '.join(natural.values())]
  fake_workdir.write(tmp_path / 'one', num_clusters=1, num_rounds=2)
  metrics = tmp_path / 'one' / 'metrics.csv'
  metrics.write_text(metrics.read_text().replace('membership/', 'gone/'))
  one = _captions(tmp_path / 'one')
  assert 'global model' in one['accuracy.png']
  assert 'cluster' not in ' '.join(one.values())


@pytest.mark.usefixtures('no_pixels')
def test_the_cluster_id_is_explained_where_it_is_shown(reported, tmp_path):
  note = 'number in brackets is the cluster id'
  assert note in reported[1].read_text()
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'evaluation' / 'summary.json'
  summary = {'source_names': ['a'], 'num_clusters': 2}
  planted = ['a', 'b']
  summary |= {'planted_names': planted, 'matched_sources': planted}
  sealed_json.write(path, summary)
  assert note not in page.write_report(tmp_path).read_text()
