"""What pFedKM is in special cases (Tang, Guo and Guo 2021)."""

import numpy as np
import pytest

from tests.testing import contract, toys
from tff_algos.algorithms import pfedme
from tff_algos.algorithms.pfedkm import pfedkm
from tff_algos.stages.client import moreau_envelope

_TRAINING = moreau_envelope.MoreauEnvelopeConfig(
  num_local_steps=3,
  batch_size=4,
  client_learning_rate=0.05,
  proximal_weight=4.0,
  num_proximal_steps=2,
  personal_learning_rate=0.1,
)


@pytest.mark.parametrize('weighting', ['uniform', 'examples'])
def test_one_cluster_is_pfedme_bit_for_bit(weighting):
  options = {
    'weighting': weighting,
    'server_mixing': 0.7,
    'local_training': _TRAINING,
  }
  source, model = contract.build_source(), toys.mlp()
  one = pfedkm.build_pfedkm(
    model, pfedkm.PFedKMConfig(num_clusters=1, **options)
  )
  other = pfedme.build_pfedme(model, pfedme.PFedMeConfig(**options))
  found, states, outputs = toys.run_rounds(one, source, 3)
  expected, expected_states, expected_outputs = toys.run_rounds(
    other, source, 3
  )
  assert found.cluster_assignment.tolist() == [0] * len(contract.SIZES)
  for name, leaf in found.cluster_models.items():
    np.testing.assert_array_equal(leaf[0], expected.model_weights[name])
  np.testing.assert_equal(states, expected_states)
  for output, expected_output in zip(outputs, expected_outputs, strict=True):
    assert output.client_metrics == expected_output.client_metrics
