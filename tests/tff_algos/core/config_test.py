"""Tests of strict configs, by hand and by fuzzing."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from tff_algos.core import checks, config, errors


@dataclasses.dataclass(frozen=True)
class Inner:
  rate: float = 0.5
  sizes: tuple[int, ...] = (1, 2)

  def __post_init__(self):
    checks.check_positive('rate', self.rate)


@dataclasses.dataclass(frozen=True)
class Outer:
  count: int
  label: str = 'x'
  flag: bool = False
  limit: int | None = None
  inner: Inner = Inner()
  inners: tuple[Inner, ...] = ()
  extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  anything: Any = None


@dataclasses.dataclass(frozen=True)
class Checked:
  """Checks by a plain ValueError, as a plug-in may."""

  rate: float = 0.5
  limit: float | None = None

  def __post_init__(self):
    if self.rate > 1:
      raise ValueError('at most 1')


class Entry(NamedTuple):
  config_class: type


_REGISTRY = {'outer': Entry(Outer), 'inner': Entry(Inner)}


def _refused(text):
  return pytest.raises(errors.ConfigError, match=text)


def test_defaults_fill_what_is_not_given():
  assert config.from_dict(Outer, {'count': 3}) == Outer(3)


def test_every_kind_of_field_is_read():
  read = config.from_dict(
    Outer,
    {
      'count': 3,
      'label': 'y',
      'flag': True,
      'limit': 4,
      'inner': {'rate': 2, 'sizes': [5]},
      'inners': [{'rate': 0.1}, {}],
      'extra': {'k': [1]},
      'anything': {'z': None},
    },
  )
  assert read == Outer(
    3,
    'y',
    True,
    4,
    Inner(2.0, (5,)),
    (Inner(0.1), Inner()),
    {'k': [1]},
    {'z': None},
  )
  assert isinstance(read.inner.rate, float)


@pytest.mark.parametrize(
  ('values', 'text'),
  [
    ({}, r'^config.count is missing; it has no default$'),
    (
      {'count': 1, 'lable': 'y'},
      r"^config has no key 'lable'; did you mean 'label'\? Its keys are: "
      'anything, count, extra, flag, inner, inners, label, limit$',
    ),
    ({'count': 1, 'qqq': 1}, r"^config has no key 'qqq'\. Its keys are: "),
    ({'count': 1, 3: 1}, r'^config has no key 3\. '),
    ({'count': 1, None: 1}, r'^config has no key None\. '),
    ({'count': '1'}, r"^config.count must be int, got '1' \(str\)$"),
    ({'count': 1.0}, r'^config.count must be int, got 1.0 \(float\)$'),
    ({'count': True}, r'^config.count must be int, got True \(bool\)$'),
    ({'count': None}, r'^config.count is missing; it has no default$'),
    ({'count': 1, 'label': None}, r'^config.label must be str, got None'),
    ({'count': 1, 'label': 2}, r'^config.label must be str, got 2'),
    ({'count': 1, 'flag': 1}, r'^config.flag must be bool, got 1'),
    ({'count': 1, 'limit': 'no'}, r"^config.limit must be int, got 'no'"),
    ({'count': 1, 'inner': 5}, r'^config.inner must be a mapping, got 5$'),
    ({'count': 1, 'inner': {'rat': 1}}, r"config.inner .* mean 'rate'\?"),
    ({'count': 1, 'inner': {'rate': 'a'}}, r'^config.inner.rate must be float'),
    ({'count': 1, 'inner': {'rate': True}}, r'^config.inner.rate must be floa'),
    (
      {'count': 1, 'inner': {'rate': -1}},
      r'^config.inner: rate must be a finite number > 0, got -1.0$',
    ),
    (
      {'count': 1, 'inner': {'rate': 10**400}},
      r'^config.inner.rate must be float, got an integer too large for one',
    ),
    (
      {'count': 1, 'inner': {'sizes': 3}},
      r'^config.inner.sizes must be a list',
    ),
    (
      {'count': 1, 'inner': {'sizes': [1, 'b']}},
      r"^config.inner.sizes\[1\] must be int, got 'b'",
    ),
    (
      {'count': 1, 'inners': [{}, {'rate': math.inf}]},
      r'^config.inners\[1\].rate must be a finite number, got inf$',
    ),
    (
      {'count': 1, 'extra': [1]},
      r'^config.extra must be a mapping, got \[1\]$',
    ),
  ],
)
def test_a_mistake_is_named_with_its_place(values, text):
  with _refused(text):
    config.from_dict(Outer, values)


@pytest.mark.parametrize(
  ('values', 'text'),
  [
    ({'rate': 2}, '^config: at most 1$'),
    ({'rate': math.nan}, '^config.rate must be a finite number, got nan$'),
    ({'limit': -math.inf}, '^config.limit must be a finite number, got -inf$'),
  ],
)
def test_a_mistake_that_a_plug_in_does_not_name_is_named(values, text):
  with _refused(text):
    config.from_dict(Checked, values)


@pytest.mark.parametrize('values', [None, [], 'count', 3, [('count', 1)]])
def test_a_config_that_is_no_mapping_is_refused(values):
  with _refused(r'^config must be a mapping, got '):
    config.from_dict(Outer, values)
  with _refused(r'^here must be a mapping, got '):
    config.parse_named('here', values, _REGISTRY)


def test_values_are_neither_changed_nor_kept():
  values = {'count': 1, 'extra': {'a': 1}}
  read = config.from_dict(Outer, values)
  values['extra']['a'] = 2
  assert read.extra == {'a': 1}


def test_parse_named_reads_the_options_of_the_named_entry():
  assert config.parse_named('x', {'name': 'inner', 'rate': 3}, _REGISTRY) == (
    'inner',
    Inner(3.0),
  )


def test_a_named_section_is_spelled_as_it_is_read():
  section = config.to_dict(config.Named('inner', Inner(3.0)))
  assert section == {'name': 'inner', 'rate': 3.0, 'sizes': [1, 2]}
  assert config.parse_named('x', section, _REGISTRY) == ('inner', Inner(3.0))


@pytest.mark.parametrize(
  ('name', 'hint'),
  [('iner', "; did you mean 'inner'?"), ('?', '.'), (None, '.'), ([1], '.')],
)
def test_parse_named_names_the_nearest_entry(name, hint):
  with pytest.raises(errors.ConfigError) as refusal:
    config.parse_named('x', {'name': name}, _REGISTRY)
  expected = (
    f'x.name {name!r} is unknown{hint} Known: inner, outer. Names of a plug-in '
    'need its module in --plugins'
  )
  assert str(refusal.value) == expected


def test_to_dict_is_plain_and_reads_back():
  original = Outer(3, limit=2, inners=(Inner(1.0, ()),), extra={'a': (1, 2)})
  plain = config.to_dict(original)
  assert plain['inners'] == [{'rate': 1.0, 'sizes': []}]
  assert plain['extra'] == {'a': [1, 2]}
  plain['extra'] = {'a': (1, 2)}
  assert config.from_dict(Outer, plain) == original


def test_differences_names_the_keys_and_both_values():
  ours = {'a': {'b': 1, 'c': [1]}, 'same': None, 'only': 2}
  theirs = {'a': {'b': 2, 'c': [1]}, 'same': None, 'new': {'d': 3}}
  assert config.differences(ours, theirs, 'now') == [
    'a.b: 2 there, 1 now',
    'new.d: 3 there, absent now',
    'only: absent there, 2 now',
  ]
  assert config.differences(ours, ours, 'now') == []
  assert config.differences(ours, None, 'now')


def test_config_hash_names_the_content_alone():
  hashed = config.config_hash(Outer(3))
  assert len(hashed) == 16
  assert set(hashed) <= set('0123456789abcdef')
  assert config.config_hash(Outer(3, label='x')) == hashed
  assert config.config_hash(Outer(3, label='y')) != hashed
  one = config.config_hash({'a': 1, 'b': (2,)})
  assert config.config_hash({'b': [2], 'a': 1}) == one


def test_config_hash_refuses_what_json_cannot_spell():
  with pytest.raises(ValueError, match='not JSON compliant'):
    config.config_hash({'a': float('nan')})


_LEAVES = st.one_of(
  st.none(),
  st.booleans(),
  st.integers(-(10**400), 10**400),
  st.floats(),
  st.text(max_size=5),
)
_VALUES = st.recursive(
  _LEAVES,
  lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.dictionaries(st.text(max_size=5), inner, max_size=3),
  ),
  max_leaves=6,
)


@hypothesis.given(_VALUES)
def test_any_value_is_read_or_refused_with_its_key(value):
  for field in dataclasses.fields(Outer):
    values = {'count': 1} | {field.name: value}
    try:
      read = config.from_dict(Outer, values)
    except errors.ConfigError as error:
      assert f'config.{field.name}' in str(error)
    else:
      assert isinstance(read, Outer)


@hypothesis.given(st.one_of(st.text(max_size=9), st.integers(), st.none()))
def test_any_unknown_key_is_refused_by_its_name(key):
  hypothesis.assume(key not in {f.name for f in dataclasses.fields(Outer)})
  with pytest.raises(errors.ConfigError) as refusal:
    config.from_dict(Outer, {'count': 1, key: 1})
  assert f'config has no key {key!r}' in str(refusal.value)


@dataclasses.dataclass(frozen=True)
class Grown:
  inner: Inner
  added: int = config.added_option(3)
  added_list: tuple[int, ...] = config.added_option(())


def test_added_options_are_in_a_recipe_only_if_they_are_set():
  old = {'inner': {'rate': 0.5, 'sizes': [1, 2]}}
  assert config.to_recipe(Grown(Inner())) == old
  assert config.to_recipe(Grown(Inner(), added=3)) == old
  grown = Grown(Inner(), added=4, added_list=(1,))
  assert config.to_recipe(grown) == old | {'added': 4, 'added_list': [1]}
  assert config.to_dict(Grown(Inner())) == old | {'added': 3, 'added_list': []}
  assert config.from_dict(Grown, old) == Grown(Inner())
