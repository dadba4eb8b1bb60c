"""Runs that no analysis measures."""

import dataclasses
import types

import numpy as np
import pytest

from configs.cmfl import regressions as cmfl_regressions
from configs.fed_avg import digits as fed_avg_digits
from configs.fed_avg import private
from configs.fed_soft import synthetic
from configs.filter_decomposition import global_models
from configs.pfedkm import regressions as pfedkm_regressions
from tff_algos.core import errors
from tff_algos.experiments import experiment, resolved_config
from tff_algos.experiments.analyses import (
  bounds,
  cmfl_bounds,
  factors,
  fed_soft_bounds,
  pfedkm_bounds,
  trajectories,
)
from tff_algos.privacy import mechanism
from tff_algos.training import continuation


def test_private_runs_are_refused(tmp_path):
  config = experiment.parse(private.get_config('smoke'))
  with pytest.raises(errors.ConfigError, match='factors does not .* private'):
    factors.measure(config, tmp_path, factors.Sizes(2, 1, 1))
  resolved_config.write(config, tmp_path, {})
  with pytest.raises(errors.ConfigError, match='landscape does not .* private'):
    trajectories.read([tmp_path], 1)
  config = experiment.parse(synthetic.get_config('smoke'))
  noise = mechanism.PrivacyConfig(noise_multiplier=2.0)
  with pytest.raises(errors.ConfigError, match='noise_multiplier 2 and target'):
    bounds.measure(dataclasses.replace(config, privacy=noise), tmp_path)


def test_factors_of_rounds_with_dropouts_are_refused(tmp_path):
  config = experiment.parse(fed_avg_digits.get_config('smoke'))
  training = dataclasses.replace(config.training, dropout_rate=0.25)
  config = dataclasses.replace(config, training=training)
  with pytest.raises(
    errors.ConfigError, match='factors .*dropout_rate is 0.25'
  ):
    factors.measure(config, tmp_path, factors.Sizes(2, 1, 1))


def test_factors_of_attacked_runs_are_refused(tmp_path):
  values = fed_avg_digits.get_config('smoke')
  values.attack.update(name='sign_flip', fraction=0.2)
  with pytest.raises(errors.ConfigError, match="factors .*name is 'sign_flip'"):
    factors.measure(experiment.parse(values), tmp_path, factors.Sizes(2, 1, 1))


def test_kernels_that_are_low_rank_products_are_refused(tmp_path):
  values = global_models.get_config('smoke')
  values.algorithm = {'name': 'fed_avg'}
  values.model.decomposition.num_atoms = 0
  values.model.low_rank.layers = 'convolutions'
  config = experiment.parse(values)
  text = 'measures kernels, .*low_rank.layers is .convolutions'
  with pytest.raises(errors.ConfigError, match=f'factors {text}'):
    factors.measure(config, tmp_path, factors.Sizes(2, 1, 1))
  resolved_config.write(config, tmp_path, {})
  with pytest.raises(errors.ConfigError, match=f'landscape {text}'):
    trajectories.read([tmp_path], 1)


@pytest.mark.parametrize(
  'regressions', [cmfl_regressions, pfedkm_regressions, synthetic]
)
def test_bounds_of_attacked_runs_are_refused(regressions, tmp_path):
  values = regressions.get_config('smoke')
  values.attack.update(name='sign_flip', fraction=0.2)
  with pytest.raises(errors.ConfigError, match="attack.name is 'sign_flip'"):
    bounds.measure(experiment.parse(values), tmp_path)
  values.attack.name = 'none'
  values.training.dropout_rate = 0.25
  with pytest.raises(errors.ConfigError, match='dropout_rate is 0.25'):
    bounds.measure(experiment.parse(values), tmp_path)
  assert not list(tmp_path.iterdir())


def test_rounds_of_continued_runs_are_not_repeated():
  opened = types.SimpleNamespace(
    workdir='second', parent=continuation.Parent('../first', 3, 'v')
  )
  for repeat in (
    lambda: cmfl_bounds.measure(opened, None, False),
    lambda: pfedkm_bounds.repeat(opened, None),
  ):
    with pytest.raises(errors.ConfigError, match='second continues ../first'):
      repeat()


def test_rounds_without_a_finite_local_solve_are_refused():
  states = types.SimpleNamespace(
    num_updates=np.array([1, 0]),
    personalized_weights={'kernel': np.zeros((2, 3, 1))},
  )
  server_state = types.SimpleNamespace(
    importance_weights=np.eye(2), cluster_models=states.personalized_weights
  )
  opened = types.SimpleNamespace(
    workdir='runs/x',
    store=types.SimpleNamespace(load=lambda _: states, discard=lambda: None),
    saved_states=lambda: [(3, server_state)],
    run_round=lambda state, round_num: (server_state, {}),
  )
  problem = types.SimpleNamespace(
    mixture=np.eye(2), options=types.SimpleNamespace(proximal_weight=1.0)
  )
  with pytest.raises(errors.DataError, match='in round 4 of runs/x no client'):
    next(fed_soft_bounds.steps(opened, problem))
