"""Which version answers, and what happens to broken ones."""

import errno
import gc
import os
import shutil
import threading
import time
import types
import weakref
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable, patience
from tff_algos.core import errors
from tff_algos.export import labels, versions, warm_up
from tff_algos.serving import models, served_model

X = exportable.sample_inputs()


@pytest.fixture(name='bundles', scope='module')
def make_bundles(tmp_path_factory):
  """Shift of the biases -> a bundle of cluster models."""
  base = tmp_path_factory.mktemp('bundles')
  model = exportable.linear_model()
  written = {}
  for shift in (0, 10, 20):
    state, _ = exportable.states(model)
    state.cluster_weights['bias'] += np.float32(shift)
    written[shift] = exportable.export_clusters(base, server_state=state)
  return written


@pytest.fixture(name='export')
def make_export(bundles, tmp_path):
  """Publishes the next version as an export does: by a rename."""

  def publish(shift=0):
    base = tmp_path / 'cluster_models'
    base.mkdir(exist_ok=True)
    number = max(versions.version_folders(base), default=0) + 1
    hidden = base / '.writing'
    shutil.copytree(bundles[shift], hidden)
    (hidden / 'saved_model.pb').touch()
    return hidden.rename(base / str(number))

  return publish


def first_logit(store, version=None):
  model = store.get('cluster_models', version)
  inputs = {'x': X[:1], 'cluster_id': np.int32([0])}
  return float(model.predict('serving_default', inputs)['logits'][0, 0])


def test_new_version_answers_at_once(export, tmp_path):
  export()
  store = models.ModelStore(tmp_path)
  store.load_newest()
  assert store.newest_loaded() == {'cluster_models': 1}
  before = first_logit(store)
  export(10)
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  assert first_logit(store, version=1) == pytest.approx(before)
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  assert [s.version for s in store.statuses('cluster_models')] == [2, 1]


def test_removed_version_gives_way_to_the_one_before(export, tmp_path):
  export()
  store = models.ModelStore(tmp_path)
  before = first_logit(store)
  newest = export(10)
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  shutil.rmtree(newest)
  assert first_logit(store) == pytest.approx(before)
  # The number is free again; the new bundle must not be taken for the old.
  assert export(20) == newest
  assert first_logit(store) == pytest.approx(before + 20, rel=1e-5)


@pytest.mark.parametrize(
  'damage',
  [
    lambda folder: (folder / 'saved_model.pb').write_bytes(b'junk'),
    lambda folder: (folder / 'saved_model.pb').unlink(),
    lambda folder: shutil.rmtree(folder / 'variables'),
    lambda folder: [shutil.rmtree(folder), folder.mkdir()],
    # TensorFlow would load these: weights of another version, other ids.
    lambda folder: shutil.copytree(
      folder.parent / '1' / 'variables',
      folder / 'variables',
      dirs_exist_ok=True,
    ),
  ],
)
def test_broken_version_is_not_served(export, tmp_path, damage):
  export()
  store = models.ModelStore(tmp_path)
  damage(export(10))
  before = first_logit(store)
  assert first_logit(store, version=1) == before
  with pytest.raises(errors.RequestError, match='cannot be loaded') as error:
    store.get('cluster_models', 2)
  assert error.value.status == 404
  newest, older = store.statuses('cluster_models')
  assert 'cannot be loaded' in newest.error
  assert not older.error


def test_a_touched_folder_is_still_served(export, tmp_path, monkeypatch):
  """A new graph is not: client states are read from the files of today."""
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 600)
  folder = export()
  store = models.ModelStore(tmp_path)
  store.load_newest()
  (export() / 'saved_model.pb').write_bytes(b'junk')
  assert store.get('cluster_models').version == 1
  with store.refreshed():
    (folder / '.DS_Store').touch()
    os.utime(folder, (0, 0))
    assert store.get('cluster_models').version == 1
    (folder / 'saved_model.pb').touch()
    with pytest.raises(errors.RequestError, match='version 1 .* being loaded'):
      store.get('cluster_models')


def test_a_folder_that_cannot_be_listed_hides_nothing_loaded(
  export, tmp_path, monkeypatch
):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 600)
  export()
  store = models.ModelStore(tmp_path)
  store.load_newest()

  def fail(path):
    raise OSError(errno.EIO, 'Input/output error')

  with store.refreshed(), monkeypatch.context() as broken:
    broken.setattr(models, 'os', types.SimpleNamespace(scandir=fail))
    broken.setattr(versions.pathlib.Path, 'iterdir', fail)
    assert store.get('cluster_models').version == 1
    assert store.get('cluster_models', 1).version == 1
    for ask in (
      lambda: store.get('cluster_models', 2),
      lambda: store.get('others'),
      lambda: store.statuses('cluster_models'),
      store.names,
    ):
      with pytest.raises(errors.RequestError, match='cannot be read') as error:
        ask()
      assert error.value.status == 503
    broken.setattr(served_model.pathlib.Path, 'stat', fail)
    assert store.get('cluster_models').version == 1


def test_states_are_those_of_tensorflow_serving(export, tmp_path):
  for _ in range(3):
    export()
  store = models.ModelStore(tmp_path)

  def states():
    return [status.state for status in store.statuses('cluster_models')]

  assert states() == ['LOADING', 'END', 'END']
  store.load_newest()
  store.labels = {'cluster_models': labels.Labels({'stable': 2})}
  assert states() == ['AVAILABLE', 'LOADING', 'END']
  (older,) = store.statuses('cluster_models', 2)
  assert older.state == 'LOADING'
  store._wanted.add(('cluster_models', 1))
  export()
  assert states() == ['LOADING', 'AVAILABLE', 'LOADING', 'LOADING']
  (export() / 'saved_model.pb').write_bytes(b'junk')
  store.load_newest()
  assert states() == ['END', 'AVAILABLE', 'END', 'LOADING', 'LOADING']


@pytest.mark.parametrize('name', ['saved_model.pb', 'assets.extra/bundle.json'])
def test_half_copied_version_gets_another_chance(
  export, tmp_path, monkeypatch, name
):
  """It is tried again after ten seconds, not at every request before."""
  clock = types.SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
  monkeypatch.setattr(models, 'time', clock)
  export()
  store = models.ModelStore(tmp_path)
  before = first_logit(store)
  folder = export(10)
  aside = tmp_path / 'aside'
  (folder / name).rename(aside)
  assert first_logit(store) == before
  aside.rename(folder / name)
  clock.now = 9.9
  assert first_logit(store) == before
  clock.now = 10.1
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  assert [status.error for status in store.statuses('cluster_models')] == [
    '',
    '',
  ]


def test_version_is_loaded_once(export, tmp_path):
  export()
  store = models.ModelStore(tmp_path)
  model = store.get('cluster_models')
  assert store.get('cluster_models') is model
  assert store.get('cluster_models', 1) is model


def test_requests_at_the_same_time_share_one_load(
  export, tmp_path, monkeypatch
):
  """Both find nothing loaded before either of them loads."""
  export()
  both, thread = threading.Barrier(2), threading.local()
  original = models.ModelStore._still_loaded

  def look(self, *arguments):
    found = original(self, *arguments)
    if not hasattr(thread, 'has_looked'):
      thread.has_looked = True
      both.wait(timeout=60)
    return found

  monkeypatch.setattr(models.ModelStore, '_still_loaded', look)
  store = models.ModelStore(tmp_path)
  with futures.ThreadPoolExecutor(2) as pool:
    one, two = pool.map(store.get, ['cluster_models'] * 2)
  assert one is two


@pytest.mark.verify
def test_new_version_frees_the_memory_of_those_before(export, tmp_path):
  export()
  store = models.ModelStore(tmp_path)
  old = weakref.ref(store.get('cluster_models'))
  export(10)
  assert store.get('cluster_models').version == 2
  gc.collect()
  assert old() is None
  # What a request names stays beside the newest one.
  named = store.get('cluster_models', 1)
  newest = store.get('cluster_models')
  assert store.get('cluster_models', 1) is named
  assert store.get('cluster_models') is newest


def test_nothing_to_serve_is_an_error(tmp_path):
  with pytest.raises(errors.UserError, match='has no <model>/<version>'):
    models.ModelStore(tmp_path).load_newest()
  with pytest.raises(errors.UserError, match='cannot be read: No such file'):
    models.ModelStore(tmp_path / 'missing').load_newest()
  (tmp_path / 'broken' / '1').mkdir(parents=True)
  with pytest.raises(errors.UserError, match="'broken' cannot be loaded"):
    models.ModelStore(tmp_path).load_newest()


def test_versions_change_under_requests(export, tmp_path):
  export()
  store = models.ModelStore(tmp_path)
  first = first_logit(store)
  done = threading.Event()

  def ask():
    answers = set()
    while not done.is_set():
      answers.add(round(first_logit(store) - first))
    return answers

  with futures.ThreadPoolExecutor(2) as pool:
    asked = [pool.submit(ask) for _ in range(2)]
    try:
      for shift in (10, 20):
        export(shift)
        first_logit(store)
    finally:
      done.set()
  for answers in asked:
    assert set() < answers.result() <= {0, 10, 20}
  assert first_logit(store) == pytest.approx(first + 20, rel=1e-5)


def test_version_before_answers_until_the_next_is_warm(
  export, tmp_path, monkeypatch
):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  is_warm, warming = threading.Event(), threading.Event()

  def warm_up(model):
    warming.set()
    assert is_warm.wait(60)

  export()
  store = models.ModelStore(tmp_path)
  before = first_logit(store)
  monkeypatch.setattr(served_model.ServedModel, 'warm_up', warm_up)
  with store.refreshed():
    export(10)
    assert warming.wait(60)
    asked_at = time.monotonic()
    assert first_logit(store) == before
    assert time.monotonic() - asked_at < 20
    is_warm.set()
    patience.until(lambda: first_logit(store) != before)
    assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)


def test_versions_that_requests_name_are_loaded_beside_them(
  export, tmp_path, monkeypatch
):
  """No request waits for it, and few of them are held."""
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  for shift in (10, 10, 10, 20):
    export(shift)
  store = models.ModelStore(tmp_path)
  store.load_newest()
  newest = first_logit(store)
  slow, original = threading.Event(), served_model.ServedModel.warm_up

  def warm_up(model):
    assert slow.wait(60)
    original(model)

  monkeypatch.setattr(served_model.ServedModel, 'warm_up', warm_up)
  with store.refreshed():
    for version in (1, 2, 3):
      with pytest.raises(errors.RequestError, match='being loaded') as error:
        store.get('cluster_models', version)
      assert error.value.status == 503
      slow.set()
      patience.until(
        lambda version=version: version in store._loaded['cluster_models']
      )
      expected = pytest.approx(newest - 10, rel=1e-5)
      assert first_logit(store, version) == expected
    assert set(store._loaded['cluster_models']) == {2, 3, 4}
    assert first_logit(store) == newest


def test_one_of_the_named_versions_is_loaded_between_releases(export, tmp_path):
  """So that callers who name many cannot delay a release."""
  for _ in range(3):
    export()
  store = models.ModelStore(tmp_path)
  store._wanted = {('cluster_models', 1), ('cluster_models', 2)}
  sweeps = iter([False, True])
  store._refresh(
    types.SimpleNamespace(wait=lambda _: next(sweeps)),
    types.SimpleNamespace(current=lambda: None),
  )
  (left,) = store._wanted
  loaded = {3, *{1, 2} - {left[1]}}
  assert set(store._loaded['cluster_models']) == loaded


def test_new_labels_keep_the_versions_that_they_name(export, tmp_path):
  """Also while they are loaded, one after the other."""
  for _ in range(5):
    export()
  store = models.ModelStore(tmp_path)
  store.load_newest()
  named = labels.Labels({'canary': 4, 'stable': 3, 'old': 2}, 0.5)
  labels.assign(tmp_path, ['cluster_models'], named)
  store._load_labels()
  assert set(store._loaded['cluster_models']) == {2, 3, 4, 5}


def test_a_folder_that_may_not_be_read_hides_no_model(
  export, tmp_path, monkeypatch
):
  """Such as lost+found of a volume: neither at the start nor for releases."""
  (tmp_path / 'a lost+found').mkdir()
  export()
  exportable.hide_versions(monkeypatch, 'a lost+found')
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  store = models.ModelStore(tmp_path)
  store.load_newest()
  assert store.newest_loaded() == {'cluster_models': 1}
  assert store.names() == ['cluster_models']
  with pytest.raises(
    errors.RequestError, match='cannot be read: Perm'
  ) as error:
    store.get('a lost+found')
  assert error.value.status == 503
  with store.refreshed():
    export()
    patience.until(lambda: store.newest_loaded() == {'cluster_models': 2})


def test_a_named_version_that_is_broken(export, tmp_path, monkeypatch):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  (export() / 'saved_model.pb').write_bytes(b'junk')
  export()
  store = models.ModelStore(tmp_path)
  store.load_newest()
  with store.refreshed():
    deadline, status = time.monotonic() + 60, 503
    while status == 503:
      assert time.monotonic() < deadline
      with pytest.raises(errors.RequestError) as error:
        store.get('cluster_models', 1)
      status = error.value.status
  assert status == 404
  assert 'cannot be loaded' in str(error.value)


def test_removed_versions_are_forgotten(export, tmp_path, monkeypatch):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  export()
  store = models.ModelStore(tmp_path)
  store.load_newest()
  newest = export(10)
  store.load_newest()
  assert store.newest_loaded() == {'cluster_models': 2}
  store.get('cluster_models', 1)
  with store.refreshed():
    for folder, left in (
      (newest, {'cluster_models': 1}),
      (tmp_path / 'cluster_models', {}),
    ):
      shutil.rmtree(folder)
      patience.until(lambda left=left: store.newest_loaded() == left)


def test_labels_are_read_again_after_an_error_of_the_disk(
  export, tmp_path, monkeypatch
):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.01)
  export()
  store, calls = models.ModelStore(tmp_path), []
  load_labels = store._load_labels

  def fail_once():
    calls.append(None)
    if len(calls) == 2:  # The first is at the start.
      raise OSError(errno.EIO, 'Input/output error')
    load_labels()

  monkeypatch.setattr(store, '_load_labels', fail_once)
  with store.refreshed():
    labels.assign(tmp_path, ['cluster_models'], labels.Labels({'stable': 1}))
    patience.until(lambda: store.labels)


def test_old_versions_are_freed_while_the_store_is_refreshed(
  export, tmp_path, monkeypatch
):
  monkeypatch.setattr(models, '_REFRESH_SECONDS', 0.05)
  export()
  store = models.ModelStore(tmp_path)
  loaded = store.get('cluster_models')._loaded
  variables = loaded.signatures['serving_default'].variables
  old = [weakref.ref(one) for one in (loaded, *variables)]
  del loaded, variables
  assert len(old) > 1
  with store.refreshed():
    export(10)
    patience.until(lambda: all(one() is None for one in old))
    assert store.get('cluster_models').version == 2


def test_bundle_whose_warm_up_fails_is_not_served(
  export, tmp_path, monkeypatch
):
  export()
  store = models.ModelStore(tmp_path)
  first_logit(store)

  def fail(folder, signatures):
    raise tf.errors.InvalidArgumentError(None, None, 'no')

  monkeypatch.setattr(warm_up, 'run', fail)
  export(10)
  assert store.get('cluster_models').version == 1
  newest, _ = store.statuses('cluster_models')
  assert 'cannot be loaded' in newest.error
