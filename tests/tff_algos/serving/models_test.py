"""Which version answers, and what happens to broken ones."""

import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import cluster_models
from tff_algos.serving import models

X = exportable.sample_inputs()


def export(folder, shift=0.0):
  """Exports cluster models whose biases are shifted."""
  model = exportable.linear_model()
  state, _ = exportable.states(model)
  state.cluster_weights['bias'] += np.float32(shift)
  return cluster_models.export_cluster_models(
    folder / 'cluster_models',
    exportable.algorithm(model),
    state,
    X,
    exportable.PROVENANCE,
  )


def first_logit(store, version=None):
  model = store.get('cluster_models', version)
  inputs = {'x': X[:1], 'cluster_id': np.int32([0])}
  return float(model.predict('serving_default', inputs)['logits'][0, 0])


def test_new_version_answers_at_once(tmp_path):
  export(tmp_path)
  store = models.ModelStore(tmp_path)
  assert store.load_newest() == {'cluster_models': 1}
  before = first_logit(store)
  export(tmp_path, shift=10)
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  assert first_logit(store, version=1) == pytest.approx(before)
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)
  assert [s.version for s in store.statuses('cluster_models')] == [2, 1]


def test_removed_version_gives_way_to_the_one_before(tmp_path):
  export(tmp_path)
  store = models.ModelStore(tmp_path)
  before = first_logit(store)
  shutil.rmtree(export(tmp_path, shift=10))
  assert first_logit(store) == pytest.approx(before)
  # The number is free again; the new bundle must not be taken for the old.
  assert export(tmp_path, shift=20).name == '2'
  assert first_logit(store) == pytest.approx(before + 20, rel=1e-5)


@pytest.mark.parametrize(
  'damage',
  [
    lambda folder: (folder / 'saved_model.pb').write_bytes(b'junk'),
    lambda folder: (folder / 'saved_model.pb').unlink(),
    lambda folder: shutil.rmtree(folder / 'variables'),
    lambda folder: [shutil.rmtree(folder), folder.mkdir()],
  ],
)
def test_broken_version_is_not_served(tmp_path, damage):
  export(tmp_path)
  store = models.ModelStore(tmp_path)
  damage(export(tmp_path, shift=10))
  before = first_logit(store)
  assert first_logit(store, version=1) == before
  with pytest.raises(errors.RequestError, match='cannot be loaded') as error:
    store.get('cluster_models', 2)
  assert error.value.status == 404
  newest, older = store.statuses('cluster_models')
  assert 'cannot be loaded' in newest.error
  assert not older.error


def test_half_copied_version_gets_another_chance(tmp_path, monkeypatch):
  monkeypatch.setattr(models, '_RETRY_SECONDS', 0.0)
  export(tmp_path)
  store = models.ModelStore(tmp_path)
  before = first_logit(store)
  folder = export(tmp_path, shift=10)
  aside = tmp_path / 'aside'
  (folder / 'saved_model.pb').rename(aside)
  assert first_logit(store) == before
  aside.rename(folder / 'saved_model.pb')
  assert first_logit(store) == pytest.approx(before + 10, rel=1e-5)


def test_model_of_somebody_else_is_served(tmp_path):
  module = tf.Module()
  doubled = tf.function(
    lambda x: {'doubled': 2 * x},
    input_signature=[tf.TensorSpec([None], tf.float32, name='x')],
  )
  tf.saved_model.save(
    module, str(tmp_path / 'other' / '3'), {'serving_default': doubled}
  )
  model = models.ModelStore(tmp_path).get('other')
  outputs = model.predict('serving_default', {'x': np.float32([1, 2])})
  np.testing.assert_array_equal(outputs['doubled'], [2, 4])


def test_nothing_to_serve_is_an_error(tmp_path):
  with pytest.raises(errors.UserError, match='has no <model>/<version>'):
    models.ModelStore(tmp_path).load_newest()
  with pytest.raises(errors.UserError, match='cannot be read: No such file'):
    models.ModelStore(tmp_path / 'missing').load_newest()
  (tmp_path / 'broken' / '1').mkdir(parents=True)
  with pytest.raises(errors.UserError, match="'broken' cannot be loaded"):
    models.ModelStore(tmp_path).load_newest()


def test_server_needs_no_training_code():
  program = (
    'import sys\n'
    'import tff_algos.serving.server\n'
    "roots = {name.split('.')[0] for name in sys.modules}\n"
    "print(sorted(roots & {'tensorflow_federated', 'apache_beam'}))\n"
    "print([n for n in sys.modules if n.startswith(('tff_algos.algorithms', "
    "'tff_algos.runtimes', 'tff_algos.stages'))])\n"
  )
  done = subprocess.run(
    [sys.executable, '-c', program], capture_output=True, text=True, timeout=60
  )
  assert done.stdout == '[]\n[]\n', done.stderr


def test_versions_change_under_requests(tmp_path):
  export(tmp_path)
  store = models.ModelStore(tmp_path)
  first = first_logit(store)
  done = threading.Event()
  answers = []

  def ask():
    while not done.is_set():
      answers.append(round(first_logit(store) - first))

  threads = [threading.Thread(target=ask) for _ in range(2)]
  for thread in threads:
    thread.start()
  try:
    for shift in (10, 20):
      export(tmp_path, shift)
      first_logit(store)
  finally:
    done.set()
    for thread in threads:
      thread.join()
  assert set(answers) <= {0, 10, 20}
  assert first_logit(store) == pytest.approx(first + 20, rel=1e-5)
