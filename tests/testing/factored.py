"""A tiny network in factors and its clients, for tests of filter decomposition."""

from tests.testing import contract, toys
from tff_algos.algorithms import registry

NUM_COEFFICIENTS, NUM_ATOMS, NUM_HEAD = 4, 18, 24
NUM_ALL = NUM_COEFFICIENTS + NUM_ATOMS + NUM_HEAD
SOURCE = contract.build_source()


def model():
  """Atoms 3x3x2, coefficients 2x1x2, and a head of 8x3."""
  return contract.MODELS['convolution']()


def host(name='fed_avg', learning_rate=0.1, **options):
  """Returns a host's section of a config."""
  training = {
    'num_local_epochs': 1,
    'batch_size': 4,
    'optimizer': {'name': 'sgd', 'learning_rate': learning_rate},
  }
  defaults = {'name': name, 'cohort_size': 3, 'local_training': training}
  return {**defaults, **options}


def build(host_section=None, **options):
  """Builds filter decomposition of the network."""
  section = {
    'name': 'filter_decomposition',
    'host': host_section or host(),
    **options,
  }
  return registry.build_algorithm(registry.parse_config(section), model())


def run(algorithm, num_rounds, **options):
  """Returns the server state, the client states and the outputs."""
  return toys.run_rounds(algorithm, SOURCE, num_rounds, **options)
