"""Rounds that are run once more are those of the training, bit for bit."""

import dataclasses

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.evaluation import recovery
from tff_algos.experiments import session
from tff_algos.experiments.analyses import fed_soft_bounds
from tff_algos.models import registry as models

pytestmark = pytest.mark.slow


@pytest.fixture(name='opened')
def _opened(trained_regressions):
  with session.open_session(*trained_regressions) as opened:
    yield opened


def _problem(opened, use_bias=False):
  options = opened.config.algorithm.options
  return fed_soft_bounds.read_problem(opened, options, use_bias)


def test_a_step_is_the_round_that_the_training_made(opened):
  problem = _problem(opened)
  steps = list(fed_soft_bounds.steps(opened, problem))
  assert [step.round_num for step in steps] == [0, 1, 2]
  everyone = np.arange(opened.source.population.num_clients)
  trained_before = np.zeros(len(everyone), int)
  for round_num in (1, 2):
    _, server_state = opened.restore(round_num)
    states = opened.store.load(everyone)
    trained = np.asarray(states.num_updates) > trained_before
    trained_before = np.array(states.num_updates)
    solves = steps[round_num - 1].solves
    kernels = np.asarray(states.personalized_weights['kernel'])[trained, :, 0]
    np.testing.assert_array_equal(solves.local_models, kernels)
    np.testing.assert_array_equal(solves.mixture, problem.mixture[trained])
    # Clusters have come in the order of the sources.
    importance = steps[round_num - 1].importance
    np.testing.assert_array_equal(
      np.sort(importance, axis=1),
      np.sort(server_state.importance_weights, axis=1),
    )
    np.testing.assert_array_equal(solves.importance, importance[trained])
    centers = np.asarray(server_state.cluster_models['kernel'])[..., 0]
    assert {tuple(one) for one in steps[round_num].solves.centers} == {
      tuple(one) for one in centers.astype(np.float64)
    }
  last = steps[2].importance
  agreement = np.abs(last - problem.mixture).mean()
  assert agreement < np.abs(last[:, ::-1] - problem.mixture).mean()


def test_importance_and_centers_follow_their_sources(opened, monkeypatch):
  problem, steps = _problem(opened), []
  for matched in ([0, 1], [1, 0]):
    monkeypatch.setattr(
      recovery,
      'match_clusters',
      lambda *unused, matched=matched: np.array(matched),
    )
    steps.append(next(fed_soft_bounds.steps(opened, problem)))
    opened.store.discard()
  straight, crossed = steps
  assert np.ptp(straight.importance, axis=1).max() > 0
  for one, other in (
    (straight.importance, crossed.importance),
    (straight.solves.importance, crossed.solves.importance),
    (straight.solves.centers.T, crossed.solves.centers.T),
  ):
    np.testing.assert_array_equal(one[:, ::-1], other)


def test_the_problem_is_that_of_the_dataset(opened):
  problem = _problem(opened, use_bias=True)
  dataset = opened.dataset
  for source, (x, y) in enumerate(problem.examples):
    held_out = dataset.held_out(source)
    assert x.shape == (held_out.num_examples, 11) and (x[:, -1] == 1).all()
    np.testing.assert_array_equal(x[:, :-1], held_out.x)
    np.testing.assert_array_equal(y, held_out.y)
  # Noise 1, 500 examples: the least squares miss theta by about 0.15.
  assert abs(problem.risks.gaps[1] - np.sqrt(165)) < 1
  assert np.abs(problem.risks.minimizers[:, -1]).max() < 0.3
  sources = dataset.examples(dataset.client_ids[3], schema.TRAIN).source
  assert problem.mixture[3, 1] == sources.mean()
  np.testing.assert_array_equal(
    problem.num_examples, dataset.num_examples(schema.TRAIN)
  )


@pytest.mark.parametrize(
  ('selection', 'size', 'expected'),
  [
    ('without_replacement', 6, 6),
    ('without_replacement', 12, np.inf),
    ('with_replacement', 12, 12),
    ('weighted_full', 6, np.inf),
  ],
)
def test_draws_are_infinite_if_everybody_takes_part(
  opened, selection, size, expected
):
  problem = _problem(opened)
  options = dataclasses.replace(
    problem.options, selection=selection, cohort_size_per_cluster=size
  )
  assert problem._replace(options=options).num_draws == expected


def test_held_out_examples_that_do_not_span_the_features_are_refused(
  opened, monkeypatch
):
  full = opened.dataset.held_out
  monkeypatch.setattr(
    opened.dataset,
    'held_out',
    lambda source: schema.Examples(*(part[:5] for part in full(source))),
  )
  with pytest.raises(errors.DataError, match='source 0 is not strongly convex'):
    _problem(opened)


def test_a_run_without_checkpoint_is_refused(trained_regressions, tmp_path):
  config, folder = trained_regressions
  (tmp_path / 'dataset').symlink_to(folder / 'dataset')
  with session.open_session(config, tmp_path) as opened:
    problem = _problem(opened)
    with pytest.raises(errors.CheckpointError, match='binaries.train first'):
      list(fed_soft_bounds.steps(opened, problem))


def test_an_intercept_is_the_last_weight(
  trained_regressions, tmp_path, monkeypatch
):
  config, folder = trained_regressions
  (tmp_path / 'dataset').symlink_to(folder / 'dataset')
  biased = dataclasses.replace(
    config, model=models.parse_config({'name': 'linear_regression'})
  )
  with session.open_session(biased, tmp_path) as opened:
    monkeypatch.setattr(opened.checkpoints, 'rounds', lambda: [1])
    problem = _problem(opened, use_bias=True)
    solves = next(fed_soft_bounds.steps(opened, problem)).solves
  assert solves.centers.shape == (2, 11) and (solves.centers[:, -1] == 0).all()
  assert solves.local_models.shape[1] == 11
  assert (solves.local_models[:, -1] != 0).all()
