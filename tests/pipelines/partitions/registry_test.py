import pytest

from pipelines.partitions import groups, natural, registry
from tff_algos.core import errors


def test_options_of_laws():
  assert registry.parse_options('natural', {}) == natural.Options()
  parsed = registry.parse_options('class_groups', {'class_groups': [[0], [1]]})
  assert parsed == groups.Options(class_groups=((0,), (1,)))
  for law in ('10:90', 'random', 'iid', 'linear'):
    registry.parse_options(law, {})


@pytest.mark.parametrize('law', sorted(registry.DIVISIONS))
def test_laws_have_their_own_options(law):
  with pytest.raises(errors.ConfigError, match="options has no key 'colour'"):
    registry.parse_options(law, {'colour': 1})


@pytest.mark.parametrize(
  ('law', 'options', 'text'),
  [
    ('pathological', {}, "one of 'iid'.*'shards'.*'natural'"),
    ('iid', {'concentration': 1.0}, "options has no key 'concentration'"),
    ('dirichlet', {}, 'options.concentration is missing'),
    ('dirichlet', {'concentration': 'low'}, 'options.concentration must be'),
    ('shards', {'shards_per_client': 0}, 'shards_per_client must be'),
  ],
)
def test_bad_options(law, options, text):
  with pytest.raises(errors.ConfigError, match=text):
    registry.parse_options(law, options)
