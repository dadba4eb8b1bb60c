"""Flags of comparisons become the options of `comparison.compare`."""

import pytest
from absl import flags

from binaries import comparison_flags
from tff_algos.core import errors
from tff_algos.experiments.sweeps import comparison
from tff_algos.reports.sweep import plan, target


@pytest.fixture(name='read')
def make_read(monkeypatch):
  """Returns a function that parses arguments with flags of their own."""

  def read(*arguments):
    values = flags.FlagValues()
    for name in (
      *('DEFINE_list', 'DEFINE_float', 'DEFINE_string', 'DEFINE_enum'),
      'DEFINE_multi_string',
    ):
      define = getattr(flags, name)
      monkeypatch.setattr(
        comparison_flags.flags,
        name,
        lambda *args, define=define, **options: define(
          *args, flag_values=values, **options
        ),
      )
    read_options = comparison_flags.define()
    monkeypatch.undo()
    values(['program', *arguments])
    return read_options()

  return read


def test_without_flags_options_are_the_defaults(read):
  options = read()
  assert options._replace(prefixes=()) == comparison.Options()
  assert not options.prefixes


def test_an_index_that_is_not_a_number_is_refused(read):
  with pytest.raises(errors.ConfigError, match='--least_ari must be'):
    read('--least_ari=nan')


def test_every_flag_reaches_its_option(read):
  options = read(
    '--metrics=a/,b/',
    '--least_ari=0.5',
    '--choose=algorithm.num_clusters',
    '--choose_by=unseen',
    '--target=a/accuracy=0.8',
    '--clock=rates=5e5',
  )
  assert options.prefixes == ['a/', 'b/']
  assert options.least_ari == 0.5
  assert options.question == plan.Question(
    'algorithm.num_clusters', plan.UNSEEN
  )
  assert options.target == target.Target('a/accuracy', 0.8)
  assert options.clock.rates == (5e5,)
