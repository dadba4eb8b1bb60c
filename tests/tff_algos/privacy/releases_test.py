"""Whatever clients upload and receive has a declared treatment."""

import pytest

from tests.testing import contract, programs, toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.privacy import releases

_CASES = [
  (name, variant)
  for name in registry.ALGORITHMS
  for variant in ('', *contract.VARIANTS.get(name, {}))
]


def _build(name, variant='', **options):
  section = contract.section(name, 'convolution', variant)
  return registry.build_algorithm(
    registry.parse_config({**section, **options}),
    contract.MODELS['convolution'](),
  )


@pytest.mark.parametrize(('name', 'variant'), _CASES)
def test_every_uploaded_field_is_declared(name, variant):
  declared = releases.RELEASES[name]
  if isinstance(declared, releases.Refused):
    return  # Of any field.
  for phase in _build(name, variant).phases.values():
    purpose = algorithm_lib.phase_purpose(phase.name)
    for field in phase.aggregation:
      assert f'{purpose}.{field}' in declared


@pytest.mark.parametrize(('name', 'variant'), _CASES)
def test_every_received_field_is_declared_unless_an_upload_is_refused(
  name, variant
):
  try:
    releases.summed_fields(_build(name, variant))
  except errors.ConfigError as error:
    assert 'does not declare' not in str(error)


def test_only_registered_algorithms_are_declared():
  assert releases.RELEASES.keys() == registry.ALGORITHMS.keys()
  assert releases.RECEIVED.keys() < registry.ALGORITHMS.keys()


@pytest.mark.parametrize(
  ('name', 'options', 'text'),
  [
    ('cfl', {}, 'single uploads'),
    ('ppfl', {'laplacian': {'weight': 0.1}}, 'laplacian.weight to 0'),
    ('ppfl', {'laplacian': {}, 'schedule': 'random_block'}, 'algorithm.sched'),
    ('ifca', {'initialization': {'mode': 'k-means++'}}, "mode to 'random'"),
    (
      'ppfl',
      {'laplacian': {}, 'membership': {'gradient_weight': 'client_weight'}},
      r"joint\.client_weight is sent to clients.*gradient_weight to 'none'",
    ),
    (
      'ppfl',
      {
        'laplacian': {},
        'schedule': 'shared_first',
        'weighting': 'uniform',
        'membership': {'gradient_weight': 'client_weight'},
      },
      r"membership\.client_weight is sent to clients.*weight to 'none'",
    ),
    ('fed_soft', {'download': 'mixed_center'}, "to 'all_centers'"),
    (
      'fed_avg',
      {'aggregation': {'rule': 'median'}, 'cohort_size': 0},
      "aggregation.rule to 'mean'",
    ),
  ],
)
def test_an_algorithm_that_discloses_a_field_is_refused(name, options, text):
  if name == 'ppfl':
    options = {'stationarity_interval': 0, **options}
  with pytest.raises(errors.ConfigError, match=text):
    releases.summed_fields(_build(name, **options))


def test_an_undeclared_field_is_refused():
  algorithm = _build('fed_avg')
  train = algorithm.phases['train']
  phases = {'train': train._replace(name='other')}
  text = r"does not declare what becomes of 'other\.local_weights'"
  with pytest.raises(errors.ConfigError, match=text):
    releases.summed_fields(
      algorithm_lib.FederatedAlgorithm(**{**vars(algorithm), 'phases': phases})
    )


def test_an_algorithm_without_sums_is_refused():
  algorithm = registry.build_algorithm(
    registry.parse_config(contract.section('fed_avg', 'logistic')),
    toys.logistic(),
  )
  with pytest.raises(errors.ConfigError, match='sums no field'):
    releases.summed_fields(
      algorithm_lib.FederatedAlgorithm(**{**vars(algorithm), 'phases': {}})
    )


def _rows(declarations, own):
  for name, fields in declarations.items():
    if isinstance(fields, releases.Refused):
      fields = {'*': fields}
    for field, treatment in fields.items():
      match treatment:
        case releases.Summed(how=how):
          yield f'| {name} | `{field}` | clipped, summed, noised: {how} |'
        case releases.Own(how=how):
          yield f'| {name} | `{field}` | {own} the same client alone: {how} |'
        case releases.Replaced(by=by, why=why):
          yield f'| {name} | `{field}` | `{by}` in its place: it is {why} |'
        case releases.Refused(why=why, instead=instead):
          remedy = f'; {instead}' if instead else ''
          yield f'| {name} | `{field}` | **refused**: {why}{remedy} |'


@pytest.mark.parametrize(
  ('title', 'declarations', 'own'),
  [
    ('uploaded', releases.RELEASES, 'for'),
    ('received', releases.RECEIVED, 'from'),
  ],
)
def test_the_page_has_the_declarations(title, declarations, own):
  """Prints the table that belongs there if it does not."""
  rows = _rows(declarations, own)
  table = '\n'.join(
    [f'| algorithm | {title} field | treatment |', '|---|---|---|', *rows]
  )
  page = programs.ROOT / 'docs' / 'privacy.md'
  assert table in page.read_text(), table
