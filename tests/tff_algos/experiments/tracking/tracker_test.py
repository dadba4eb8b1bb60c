"""What is told of an exported model."""

import numpy as np
import pytest

from tests.testing import tracked
from tff_algos.core import errors
from tff_algos.experiments.tracking import tracker


def test_a_bundle_is_read_with_its_signature(tmp_path):
  bundle = tracked.write_bundle(tmp_path)
  found = tracker.read_model(bundle)
  assert found.name == 'cluster_models'
  assert found.bundle == bundle
  assert found.inputs == (
    tracker.Field('client_id', np.dtype(object), (-1,)),
    tracker.Field('x', np.dtype('float32'), (-1, 8, 8)),
  )
  assert found.outputs == (
    tracker.Field('logits', np.dtype('float32'), (-1, 10)),
  )
  assert found.provenance == {
    'round_num': 7,
    'config_hash': 'abc',
    'dataset_version': 'v1',
  }


def test_an_unknown_tracker_is_refused():
  with pytest.raises(errors.ConfigError, match="name .*mlflow.*'neptune'"):
    tracker.TrackingConfig('neptune')


@pytest.mark.parametrize('name', ['', 'a/b', "team's", 'a:b'])
def test_an_experiment_that_no_tracker_takes_is_refused(name):
  with pytest.raises(errors.ConfigError, match='experiment must be letters'):
    tracker.TrackingConfig('mlflow', name)
