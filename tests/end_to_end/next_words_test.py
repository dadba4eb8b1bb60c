"""From posts to a served model that says the next word at every place."""

import numpy as np
import pytest
import tensorflow as tf

from configs.fed_avg import digits
from tests.testing import contract, raw_sources, unrendered
from tff_algos.data import schema
from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  exporting,
  session,
  training,
)
from tff_algos.reports.run import page
from tff_algos.runtimes import registry as runtimes

# the a how to do i: 1 to 6; another word 7, beginning 8, end 9.
_TRAIN = {
  'anna': ['how to do the a', 'how to do', 'xyzzy how to', 'how to do the a'],
  'bob': ['i do the a', 'i do', 'do the a', '', 'i do the a', 'i'],
  'cleo': ['the a the a the'],
}
_TEST = {'anna': ['how to do xyzzy'], 'bob': ['i do the', 'a'], 'cleo': ['']}
_ALGORITHM = {
  'name': 'fed_avg',
  'cohort_size': 3,
  'local_training': {
    'num_local_epochs': 4,
    'batch_size': 2,
    'optimizer': {'name': 'adam', 'learning_rate': 0.02},
  },
}


def _config(folder):
  values = digits.get_config('smoke').to_dict()
  posts = {
    client: {
      'train': [raw_sources.post_record(post) for post in posts],
      'test': [raw_sources.post_record(post) for post in _TEST[client]],
    }
    for client, posts in _TRAIN.items()
  }
  raw_sources.write_database(folder / 'stackoverflow.sqlite', posts)
  (folder / 'vocabulary.txt').write_text('\n'.join(raw_sources.VOCABULARY))
  values['dataset'] = {
    'source': {
      'name': 'stack_overflow',
      'options': {
        'folder': str(folder),
        'vocabulary_size': 6,
        'length': 5,
        'examples_are': 'posts',
      },
    },
    'distributions': {'kind': 'identity'},
    'partition': {'law': 'natural'},
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.0,
      'client_test': 'dealt',
    },
  }
  values['model'] = {
    'name': 'transformer',
    'num_blocks': 1,
    'width': 12,
    'num_heads': 2,
    'hidden_size': 16,
  }
  values['algorithm'] = _ALGORITHM
  values['training'].update({'num_rounds': 5, 'evaluation_interval': 5})
  return experiment.parse_plain(values)


@pytest.fixture(scope='module', name='trained')
def _trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp('raw')
  config = _config(folder)
  workdir = tmp_path_factory.mktemp('run')
  datasets.build(config.dataset, workdir)
  training.train(config, workdir)
  return config, workdir


def _count_right(opened, weights, client_id):
  """Returns (right, scored) words of a client's test, place by place."""
  model = opened.algorithm.personalized_model
  examples = opened.dataset.examples(client_id, schema.TEST)
  predicted = np.argmax(model.apply(weights, examples.x), axis=-1)
  pairs = [
    (said, label)
    for said, label in zip(predicted.flat, examples.y.flat, strict=True)
    if label not in (0, 7, 8, 9)
  ]
  return sum(said == label for said, label in pairs), len(pairs)


def test_accuracy_is_that_of_words_alone(trained):
  """Of 8 test words one is 'xyzzy'; ends and padding count for nothing."""
  config, workdir = trained
  with session.open_session(config, workdir) as opened:
    _, server_state = opened.restore()
    metrics = opened.evaluator.evaluate(server_state).metrics
    ids = opened.dataset.client_ids
    counts = np.array(
      [
        _count_right(
          opened,
          opened.algorithm.personalized_weights(
            tf.nest.map_structure(tf.constant, server_state),
            tf.nest.map_structure(lambda s: s[0], opened.store.load([i])),
            tf.constant(i),
          ),
          ids[i],
        )
        for i in range(len(ids))
      ]
    )
  assert counts[:, 1].tolist() == [3, 4, 0]
  right, scored = counts.sum(axis=0)
  assert right / scored > 0.5  # Chance is 1 in 10.
  name = 'participating/test/personalized/accuracy'
  np.testing.assert_allclose(metrics[name], right / scored)
  shares = counts[:2, 0] / counts[:2, 1]
  np.testing.assert_allclose(metrics[f'{name}_plain_mean'], shares.mean())
  assert metrics[f'{name}_num_nan'] == 0  # An empty post is no divergence.


@pytest.mark.verify
def test_all_runtimes_train_to_the_same_weights(trained):
  config, workdir = trained
  ends = {}
  with session.open_session(config, workdir) as opened:
    for name in ('vectorized', 'debug', 'tff'):
      with runtimes.build_runtime(
        runtimes.RuntimeConfig(name), opened.algorithm, 3
      ) as runtime:
        ends[name] = contract.toys.run_rounds(
          opened.algorithm, opened.source, 1, runtime=runtime
        )[0]
  for name in ('vectorized', 'tff'):
    tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
      ends[name],
      ends['debug'],
    )


def test_evaluates_and_exports(trained):
  config, workdir = trained
  evaluating.evaluate(config, workdir)
  with unrendered.blank_pictures():
    assert page.write_report(workdir).exists()
  cluster_models, personalized = (
    tf.saved_model.load(str(folder)).signatures
    for folder in exporting.export(config, workdir)
  )
  x = tf.constant([[8, 3, 4, 0, 0], [8, 6, 0, 0, 0]])
  said = personalized['serving_default'](
    x=x, client_id=tf.constant(['anna', 'bob'])
  )
  assert said['class_id'].shape == (2, 5)
  assert said['probabilities'].shape == (2, 5, 10)
  label = tf.constant([[3, 4, 5, 0, 0], [6, 5, 0, 0, 0]])
  picked = cluster_models['pick_cluster'](x=x, label=label)
  losses = []
  for cluster_id in range(picked['mean_loss'].shape[1]):
    logits = cluster_models['predict_cluster'](
      x=x, cluster_id=tf.fill([2], cluster_id)
    )['logits']
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
    losses.append(each.numpy()[label.numpy() > 0].mean())
  np.testing.assert_allclose(picked['mean_loss'][0], losses, rtol=1e-4)
  assert picked['cluster_id'].numpy() == np.argmin(losses)
  with pytest.raises(tf.errors.InvalidArgumentError, match='got 10 in row 1'):
    cluster_models['pick_cluster'](x=x, label=label + [[0] * 5, [4] + [0] * 4])
