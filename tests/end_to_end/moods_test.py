"""From tweets and word vectors to a served model of moods, by a committee."""

import csv

import numpy as np
import pytest
import tensorflow as tf

from configs.cmfl import sentiment140
from tests.testing import lstm_oracle
from tff_algos.data import schema
from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  exporting,
  session,
  training,
)
from tff_algos.numerics import trees
from tff_algos.reports.run import page

_MOODS = {'0': ('sad', 'bad', 'rain'), '4': ('good', 'glad', 'sun')}
# The file has no vectors of 'rain' and 'sun'.
_VECTORS = (
  'the 0.1 0.1 0.9\ngood 1 0 0.2\nglad 0.9 0.1 0\nsad -1 0 0\nbad -0.8 0 0.1\n'
)


def _write(folder):
  """Writes 12 tweets of each of six accounts, each mood half of them."""
  generator = np.random.default_rng(0)
  with open(folder / 'tweets.csv', 'w', newline='') as file:
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    for i in range(72):
      mood = '04'[i % 2]
      words = generator.choice(_MOODS[mood][:2], 3).tolist()
      text = ' '.join([*words, _MOODS[mood][2], f'{"the " * (i % 3)}'])
      writer.writerow([mood, i, 'day', 'query', f'account_{i // 12}', text])
  (folder / 'vectors.txt').write_text(_VECTORS)


def _config(folder):
  config = sentiment140.get_config('similar')
  with config.unlocked():
    config.dataset.source.options = {
      'folder': str(folder),
      'train_file': 'tweets.csv',
      'encoding': 'utf-8',
      'length': 6,
      'vocabulary_size': 7,
    }
    config.dataset.partition.options = {}
    config.dataset.num_shards = 1
    config.algorithm.committee.active_rate = 1.0
    config.algorithm.local_training.num_local_epochs = 10
    config.algorithm.local_training.optimizer = {
      'name': 'adam',
      'learning_rate': 0.03,
    }
    config.training.num_rounds = 3
    config.training.evaluation_interval = 3
    config.model.hidden_size = 8
    config.model.dense_size = 4
    config.model.embedding_size = 3
    config.model.embeddings_file = str(folder / 'vectors.txt')
  return experiment.parse(config)


@pytest.fixture(scope='module', name='trained')
def _trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp('raw')
  _write(folder)
  config = _config(folder)
  workdir = tmp_path_factory.mktemp('run')
  datasets.build(config.dataset, workdir)
  training.train(config, workdir)
  return config, workdir


def _table(facts):
  """Returns the vectors that the ids should have, from what was written."""
  known = {
    line.split()[0]: [float(number) for number in line.split()[1:]]
    for line in _VECTORS.splitlines()
  }
  table = np.zeros([len(facts['vocabulary']) + len(facts['special_ids']), 3])
  for i, word in enumerate(facts['vocabulary'], start=1):
    table[i] = known.get(word, 0)
  return table


def _weights(opened):
  """Returns the one model that serves everybody."""
  _, server_state = opened.restore()
  return opened.algorithm.personalized_weights(
    tf.nest.map_structure(tf.constant, server_state),
    tf.nest.map_structure(lambda s: s[0], opened.store.load([0])),
    tf.constant(0),
  )


@pytest.mark.verify
def test_moods_are_learned(trained):
  config, workdir = trained
  with session.open_session(config, workdir) as opened:
    _, server_state = opened.restore()
    metrics = opened.evaluator.evaluate(server_state).metrics
    # Without the vectors: 4 * 8 * (3 + 8 + 1) + 4 * 8 * (8 + 8 + 1) of the two
    # layers, 4 * (8 + 1) and 4 + 1 of what follows.
    assert trees.num_entries(_weights(opened)) == 969
  assert metrics['participating/test/personalized/accuracy'] > 0.9


@pytest.mark.verify
def test_what_is_served_has_the_vectors_of_the_file(trained):
  """Probabilities as NumPy has them from the trained weights and the file."""
  config, workdir = trained
  evaluating.evaluate(config, workdir)
  assert page.write_report(workdir).exists()
  _, personalized = (
    tf.saved_model.load(str(folder)).signatures
    for folder in exporting.export(config, workdir)
  )
  with session.open_session(config, workdir) as opened:
    weights = _weights(opened)
    table = _table(opened.dataset.manifest['source_facts'])
    client_id = opened.dataset.client_ids[0]
    x = opened.dataset.examples(client_id, schema.TRAIN).x
  said = personalized['serving_default'](
    x=tf.constant(x), client_id=tf.fill([len(x)], client_id)
  )
  logits = [lstm_oracle.logits(weights, table[ids])[0] for ids in x]
  assert np.std(logits) > 0.5
  np.testing.assert_allclose(
    said['probabilities'][:, 1], 1 / (1 + np.exp(-np.array(logits))), 1e-4, 1e-5
  )
