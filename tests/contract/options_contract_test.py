"""Options that change what travels, what is kept or the phases of a round.

They are found by building every algorithm with every value of its options; each
needs a case in `VARIANTS` of `tests/testing/contract.py`, on all runtimes.
"""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import accelerator, contract
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.core import config as config_lib

_CASES = [
  (name, variant)
  for name, variants in contract.VARIANTS.items()
  for variant in variants
]
# In `make test`; it takes seconds to trace a case by TFF.
_FIRST_TIER = {('filter_decomposition', 'persist')}
# Options of parts that algorithms share -> where their cases are.
_SHARED = {
  'aggregation': 'robustness_contract_test',
  'server_optimizer': 'fed_avg',
}


@pytest.fixture(
  scope='module',
  params=[
    pytest.param(
      case,
      id='-'.join(case),
      marks=[] if case in _FIRST_TIER else pytest.mark.verify,
    )
    for case in _CASES
  ],
)
def case(request):
  name, variant = request.param
  with contract.Case(name, 'convolution', variant) as made:
    yield made


def test_runtimes_agree(case):
  called = {call.phase for _, _, call, _ in case.calls()}
  assert called == case.algorithm.phases.keys()
  contract.assert_close(case.debugged, case.expected)
  contract.assert_close(case.run(case.tff), case.expected)


@pytest.mark.verify
@accelerator.needed
def test_pjrt_runtime_agrees(case):
  contract.assert_close(case.run(case.pjrt), case.expected)


class _Types(NamedTuple):
  """What an algorithm sends and keeps."""

  server_state: str
  client_state: str
  phases: dict[str, tuple[str, ...]]


def _types(algorithm: algorithm_lib.FederatedAlgorithm) -> _Types:
  seed = tf.constant([1, 2])
  server_state = algorithm.init_server_state(seed, len(contract.SIZES))
  return _Types(
    _spell(server_state),
    _spell(algorithm.init_client_state(seed, seed)),
    {
      name: (
        _spell(phase.make_message(server_state)),
        str(phase.client_input),
        str({field: type(one) for field, one in phase.aggregation.items()}),
        str(phase.uses_client_state),
      )
      for name, phase in algorithm.phases.items()
    },
  )


def _spell(structure) -> str:
  return str(
    tf.nest.map_structure(
      lambda leaf: f'{np.shape(leaf)} {np.asarray(leaf).dtype}', structure
    )
  )


def _leaves(options: Any, path: tuple[str, ...] = ()):
  """Yields path and value of each option that is no group of options."""
  for field in dataclasses.fields(options):
    value = getattr(options, field.name)
    if dataclasses.is_dataclass(value):
      yield from _leaves(value, (*path, field.name))
    elif not isinstance(value, tuple):
      yield (*path, field.name), value


def _replace(options: Any, path: tuple[str, ...], value: Any) -> Any:
  name, *rest = path
  if rest:
    value = _replace(getattr(options, name), rest, value)
  return dataclasses.replace(options, **{name: value})


def _parse(monkeypatch, section):
  """Returns the options of a section, and (option, value) -> the choices."""
  choices = collections.defaultdict(set)

  def check(name, value, allowed):
    choices[name.rpartition('.')[2], value].update(allowed)
    return value

  _, options = registry.parse_config(section)
  with monkeypatch.context() as patched:
    patched.setattr(checks, 'check_one_of', check)
    # Also the groups of options that the section leaves out.
    registry.parse_config(
      {**config_lib.to_dict(options), 'name': section['name']}
    )
  return options, choices


def _others(choices, path, value):
  """Returns other values of an option, in another regime than its value."""
  if isinstance(value, bool):
    return [not value]
  if isinstance(value, str):
    return sorted(choices[path[-1], value] - {value})
  # 0 or 1 is how an option is off.
  is_off = value in (0, 1)
  return [2 if isinstance(value, int) else 0.5] * is_off


def _regime(path, value):
  """Returns the option and its value; numbers by which it is on are one."""
  is_on = not isinstance(value, (bool, str)) and value not in (0, 1)
  return path, 'on' if is_on else value


@pytest.mark.parametrize(
  ('name', 'variant'),
  [
    pytest.param(*case, marks=pytest.mark.verify if case[1] else [])
    for case in [*((name, '') for name in registry.ALGORITHMS), *_CASES]
  ],
)
def test_every_option_that_changes_the_types_has_a_case(
  name, variant, monkeypatch
):
  """Changes one option of a case at a time."""
  model = contract.MODELS['convolution']()
  build = registry.ALGORITHMS[name].build
  cases = {
    case: _parse(monkeypatch, contract.section(name, 'convolution', case))
    for case in ('', *contract.VARIANTS.get(name, ()))
  }
  known = {
    _regime(*leaf) for options, _ in cases.values() for leaf in _leaves(options)
  }
  options, choices = cases[variant]
  expected = _types(build(model, options))
  missing = set()
  for path, value in _leaves(options):
    if path[0] in _SHARED and name != _SHARED[path[0]]:
      continue
    for other in _others(choices, path, value):
      if _regime(path, other) in known:
        continue
      try:
        types = _types(build(model, _replace(options, path, other)))
      except errors.ConfigError:
        continue  # No such combination.
      if types != expected:
        missing.add(f'{".".join(path)}={other!r}')
  assert not missing
