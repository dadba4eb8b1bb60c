"""Filter decomposition of any convolutional network's kernels.

`decompose` turns a model into one whose weights hold `<layer>/atoms` and
`<layer>/coefficients` in the place of every `<layer>/kernel` of a convolution
(Chen and Qiu 2025, section 3). To algorithms these are ordinary weights: an
average of weights averages atoms and coefficients separately, as in the paper.
1 x 1 convolutions and dense layers stay unchanged.
"""

import dataclasses
from collections import OrderedDict

from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib
from tff_algos.models import model_options
from tff_algos.models.factors import atoms
from tff_algos.models.factors import low_rank as low_rank_lib
from tff_algos.numerics import factored_weights, filters, index_random

_INITIALIZERS = {
  'normal': atoms.normal,
  'uniform': atoms.uniform,
  'fourier_bessel': atoms.fourier_bessel,
}
ATOM_INITS = (*_INITIALIZERS, 'kernel')
TRAINED = ('factors', 'kernels')


@dataclasses.dataclass(frozen=True)
class DecompositionConfig:
  """Whether and how kernels are decomposed.

  Attributes:
    num_atoms: Atoms of each convolution; 0 for ordinary kernels, 9 in the
      paper.
    atom_init: Initial factors: `'normal'`, `'uniform'` or `'fourier_bessel'` of
      `models.factors.atoms`; or `'kernel'`, the factors of the ordinary
      network's initial kernel.
    trained: Weights of the network: `'factors'`; or `'kernels'`, ordinary
      kernels that start as the products of these factors, a control that
      starts as the decomposed network does.
  """

  num_atoms: int = 0
  atom_init: str = 'normal'
  trained: str = 'factors'

  def __post_init__(self):
    checks.check_int('num_atoms', self.num_atoms, minimum=0)
    checks.check_one_of('atom_init', self.atom_init, ATOM_INITS)
    checks.check_one_of('trained', self.trained, TRAINED)


@dataclasses.dataclass(frozen=True)
class DecomposableConfig(model_options.ModelConfig):
  """Options of every convolutional network, which may add its own.

  Attributes:
    decomposition: Whether and how kernels are decomposed.
    low_rank: Whether and how kernels are low-rank products instead.
  """

  decomposition: DecompositionConfig = dataclasses.field(
    default=DecompositionConfig(), kw_only=True
  )
  low_rank: low_rank_lib.LowRankConfig = dataclasses.field(
    default=low_rank_lib.LowRankConfig(), kw_only=True
  )

  def __post_init__(self):
    super().__post_init__()
    if self.decomposition.num_atoms and self.low_rank.layers != 'none':
      raise errors.ConfigError(
        f'decomposition.num_atoms is {self.decomposition.num_atoms}, but '
        f'low_rank.layers is {self.low_rank.layers!r}: a kernel is either a '
        "mixture of atoms or a product; set num_atoms to 0 or layers to 'none'"
      )
    draws_kernels = self.low_rank.layers != 'none' or (
      self.decomposition.num_atoms and self.decomposition.atom_init != 'kernel'
    )
    if self.pretrained.file and draws_kernels:
      raise errors.ConfigError(
        f'pretrained.file is {self.pretrained.file!r}, but kernels in factors '
        "would be drawn at random: set decomposition.atom_init to 'kernel', "
        "and low_rank.layers to 'none'; or pretrained.file to ''"
      )


def decompose(
  model: model_lib.Model, config: DecompositionConfig
) -> model_lib.Model:
  """Returns the model with factored kernels, or that starts as one.

  Args:
    model: Convolves by `convolutions.convolve`.
    config: How; `num_atoms` 0 returns `model` itself.

  Raises:
    ConfigError: If no kernel is larger than 1 x 1, or the initial atoms do not
      fit a kernel.
  """
  if not config.num_atoms:
    return model
  spec = model.weights_spec()
  layers = factored_weights.plain_layers(spec)
  if not layers:
    raise errors.ConfigError(
      f'decomposition.num_atoms is {config.num_atoms}, but {model.name} has no '
      'convolution with a kernel larger than 1 x 1; set it to 0'
    )

  def initialize(seed):
    plain = model.initialize(seed)
    made = {
      layer: _initial_factors(
        index_random.fold_in(seed, 1 << 16 | i),
        plain[f'{layer}/kernel'],
        config,
      )
      for i, layer in enumerate(layers)
    }
    factored = factored_weights.replace_kernels(plain, made)
    if config.trained == 'kernels':
      return factored_weights.build_kernels(factored)
    return factored

  if config.trained == 'kernels':
    return dataclasses.replace(model, initialize=initialize)

  def apply(weights, x):
    kernels = OrderedDict(
      (f'{layer}/kernel', factored_weights.take_factors(weights, layer))
      for layer in layers
    )
    return model.apply({**weights, **kernels}, x)

  return dataclasses.replace(model, initialize=initialize, apply=apply)


def _initial_factors(seed, kernel, config):
  if config.atom_init == 'kernel':
    return filters.factor_kernel(kernel, config.num_atoms)
  initialize = _INITIALIZERS[config.atom_init]
  return initialize(seed, tuple(kernel.shape), config.num_atoms)
