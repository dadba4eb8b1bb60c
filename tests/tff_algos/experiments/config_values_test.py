"""Values of a config by dotted key."""

import pytest

from tff_algos.core import errors
from tff_algos.experiments import config_values

_CONFIG = {
  'law': '10:90',
  'model': {'bias': True, 'sizes': (64,), 'rate': 0.5, 'count': 3},
}


@pytest.mark.parametrize(
  ('option', 'values'),
  [
    ('law=10_90,30:70', ('10_90', '30:70')),
    ('model.bias=true,False', (True, False)),
    ('model.rate=1,1e-3', (1.0, 0.001)),
    ('model.count=1, 2', (1, 2)),
    ('model.count=two', ('two',)),
    ('model.sizes=(64,),(8,8),[1, 2],()', ((64,), (8, 8), [1, 2], ())),
    ('model.absent=1,x,None', (1, 'x', None)),
    ('law.absent=1', (1,)),
  ],
)
def test_values_have_the_type_of_the_config(option, values):
  found = config_values.parse(option, _CONFIG)
  assert found == values
  assert [type(one) for one in found] == [type(one) for one in values]


def test_a_value_twice_is_refused():
  with pytest.raises(errors.ConfigError, match='rate=1,1.0 has a value twice'):
    config_values.parse('model.rate=1,1.0', _CONFIG)


def test_a_value_is_set_where_its_key_leads():
  values = {'a': {'b': {'c': 1}}, 'd': 2}
  config_values.assign(values, 'a.b.c', 5, '--grid')
  config_values.assign(values, 'a.b.new', 6, '--grid')
  config_values.assign(values, 'd', 7, '--grid')
  assert values == {'a': {'b': {'c': 5, 'new': 6}}, 'd': 7}


@pytest.mark.parametrize(
  ('key', 'words'),
  [
    ('a.bb.c', "--grid=a.bb.c: config.a has no key 'bb'; did you mean 'b'"),
    ('a.b.c.d', "--grid=a.b.c.d: config.a.b has no key 'c'"),
    ('a.b', '--grid=a.b: config.a.b is a section; name one of its keys: c'),
  ],
)
def test_a_key_that_leads_nowhere_is_refused(key, words):
  with pytest.raises(errors.ConfigError, match=words):
    config_values.assign({'a': {'b': {'c': 1}}}, key, 1, '--grid')
