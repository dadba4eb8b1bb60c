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
    (f'model.rate={10**400}', (str(10**400),)),
    ('model.count=1, 2', (1, 2)),
    ('model.count=two', ('two',)),
    ('model.count={[]:1}', ('{[]:1}',)),
    ('model.sizes=(64,),(8,8),[1, 2],()', ((64,), (8, 8), [1, 2], ())),
    (
      'model.sizes=((1,9),(0,8)),((0,1),(2,3)),[{}, ()]',
      (((1, 9), (0, 8)), ((0, 1), (2, 3)), [{}, ()]),
    ),
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


_NESTED = {
  'seed': 0,
  'model': {'name': 'mlp', 'hidden_sizes': (64,)},
  'training': {'num_rounds': 30, 'selection': {'patience': 0}},
  'dataset': {'partition': {'law': '10:90', 'options': {'old': 1}, 'n': 24}},
}


def test_changes_are_merged_into_sections():
  changes = {'seed': 3, 'training': {'selection': {'patience': 2}}}
  merged = config_values.merged(_NESTED, changes)
  assert merged == {
    **_NESTED,
    'seed': 3,
    'training': {'num_rounds': 30, 'selection': {'patience': 2}},
  }
  assert _NESTED['training']['selection'] == {'patience': 0}


def test_another_name_replaces_what_depends_on_it():
  merged = config_values.merged(
    _NESTED,
    {
      'model': {'name': 'lenet'},
      'dataset': {'partition': {'law': 'iid'}},
    },
  )
  assert merged['model'] == {'name': 'lenet'}
  assert merged['dataset']['partition'] == {
    'law': 'iid',
    'options': {},
    'n': 24,
  }
  host = {'name': 'fed_dyn', 'cohort_size': 20}
  decomposed = {'algorithm': {'name': 'filter_decomposition', 'host': host}}
  fed_avg = {'algorithm': {'host': {'name': 'fed_avg'}}}
  merged = config_values.merged(decomposed, fed_avg)
  assert merged['algorithm']['host'] == {'name': 'fed_avg'}
  same = config_values.merged(_NESTED, {'model': {'name': 'mlp'}})
  assert same['model'] == _NESTED['model']


def test_changes_that_do_not_fit_are_refused():
  with pytest.raises(errors.ConfigError, match="training has no key 'rounds'"):
    config_values.merged(_NESTED, {'training': {'rounds': 1}})
  with pytest.raises(
    errors.ConfigError, match='config.model is a section, got'
  ):
    config_values.merged(_NESTED, {'model': 'lenet'})
