import numpy as np
from sklearn import datasets

from pipelines.sources import registry
from tests.testing import raw_sources


def test_all_digits_are_read_in_order():
  source = registry.create('digits', {}, 0)
  examples = raw_sources.read(source)
  expected = datasets.load_digits()
  assert len(examples) == 1797
  np.testing.assert_array_equal(
    np.stack([example.x for example in examples])[..., 0], expected.images
  )
  np.testing.assert_array_equal(
    [example.y for example in examples], expected.target
  )
  assert not source.has_test_split()
  assert source.native_source_names() is None


def test_checksum_is_known():
  """Another one means that scikit-learn ships other digits."""
  checksums = registry.create('digits', {}, 0).checksums()
  assert list(checksums) == ['sklearn.datasets.load_digits']
  assert list(checksums.values())[0].startswith('83f29cb2')
