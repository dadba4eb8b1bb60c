"""Rounds of pFedKM on linear regressions, against the definitions."""

import dataclasses

import numpy as np
import pytest

from configs.pfedkm import regressions
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.experiments import datasets, experiment, session
from tff_algos.experiments.analyses import bounds, pfedkm_bounds
from tff_algos.stages.server import robust_aggregation
from tff_algos.training import loop


def _gradients(opened, model):
  """Returns grad F_i of all clients at one model, `[N, d]`."""
  found = []
  for client_id in opened.dataset.client_ids:
    examples = opened.dataset.examples(client_id, schema.TRAIN)
    x, y = (np.asarray(one, np.float64) for one in examples[:2])
    matrix = x.T @ x / len(y) + 15 * np.eye(5)
    theta = np.linalg.solve(matrix, x.T @ y / len(y) + 15 * model)
    found.append(15 * (model - theta))
  return np.array(found)


@pytest.mark.slow
def test_a_repeated_round_is_what_it_should_be(tmp_path):
  """One local step of 0.01 along exact gradients: 20 steps of the solver, each
  of which keeps about 1 - 0.06 * 16 of the error, leave nearly none.
  """
  values = regressions.get_config('smoke')
  values.training.num_rounds = 1
  values.runtime.name = 'debug'
  config = experiment.parse(values)
  datasets.build(config.dataset, tmp_path)
  options = config.algorithm.options
  with session.open_session(config, tmp_path) as opened:
    start = loop.initial_server_state(opened.algorithm, 8, config.seed)
    model = start.cluster_models['kernel'][0, :, 0].astype(np.float64)
    expected = _gradients(opened, model)
    history, (prox_error,) = pfedkm_bounds.repeat(
      opened, pfedkm_bounds.read_envelopes(opened, options, False)
    )
    assert not opened.checkpoints.rounds()
  models, gradients, assignments, objectives = history
  np.testing.assert_allclose(models[0], [model] * 2, rtol=1e-6)
  # Clients take turns at the start.
  np.testing.assert_array_equal(assignments[0], np.arange(8) % 2)
  assert gradients.shape == (2, 2, 5) and objectives.shape == (2, 2)
  for cluster in (0, 1):
    np.testing.assert_allclose(
      gradients[0, cluster], expected[cluster::2].mean(axis=0), rtol=1e-5
    )
    members = assignments[1] == cluster
    np.testing.assert_allclose(
      models[1, cluster],
      model - 0.01 * expected[members].mean(axis=0),
      rtol=1e-4,
    )
  assert 0 < prox_error < 1e-4


_MEDIAN = robust_aggregation.AggregationConfig(rule='median')
_MIXING = robust_aggregation.AggregationConfig(
  num_byzantine=1, mixes_nearest_neighbors=True
)


@pytest.mark.parametrize(
  ('option', 'text'),
  [
    ({'cohort_size': 4}, 'cohort_size is 4, weighting .uniform.'),
    ({'weighting': 'examples'}, 'cohort_size is 0, weighting .examples.'),
    ({'aggregation': _MEDIAN}, 'aggregation.rule .median. and'),
    ({'aggregation': _MIXING}, 'mixes_nearest_neighbors True: set them'),
  ],
)
def test_what_the_theorem_does_not_speak_of_is_refused(tmp_path, option, text):
  config = experiment.parse(regressions.get_config('smoke'))
  options = dataclasses.replace(config.algorithm.options, **option)
  other = dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )
  with pytest.raises(errors.ConfigError, match=text):
    bounds.measure(other, tmp_path)
  assert not list(tmp_path.iterdir())
