"""Flags of comparisons become the options of `comparison.compare`."""

import pytest
from absl import flags
from absl.testing import flagsaver

from binaries import comparison_flags
from tff_algos.experiments.sweeps import comparison
from tff_algos.reports.sweep import plan, target


@pytest.fixture(name='read')
def make_read():
  """Returns a function that parses arguments, and deletes its flags."""

  def read(*arguments):
    with flagsaver.flagsaver():  # Deletes the flags defined within.
      read_options = comparison_flags.define()
      flags.FLAGS(['program', *arguments])
      return read_options()

  yield read
  flags.FLAGS.unparse_flags()


def test_without_flags_options_are_the_defaults(read):
  options = read()
  assert options._replace(prefixes=()) == comparison.Options()
  assert not options.prefixes


def test_every_flag_reaches_its_option(read):
  options = read(
    '--metrics=a/,b/',
    '--choose=algorithm.num_clusters',
    '--choose_by=unseen',
    '--target=a/accuracy=0.8',
    '--clock=rates=5e5',
  )
  assert options.prefixes == ['a/', 'b/']
  assert options.question == plan.Question(
    'algorithm.num_clusters', plan.UNSEEN
  )
  assert options.target == target.Target('a/accuracy', 0.8)
  assert options.clock.rates == (5e5,)
