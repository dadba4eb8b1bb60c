r"""Filter decomposition of the global models: Table 1 and Figures 2a to 2c.

  python -m binaries.sweep --config=configs/filter_decomposition/global_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --grid=model.decomposition.trained=kernels,factors --num_seeds=3 \
    --workdir=runs/table_1

is FedAvg, plain and decomposed, on all six partitions, from equal starts; FedProx is
the same with `--config.algorithm.host.proximal_weight=0.0001`. The other hosts:
configs/{scaffold,fed_dyn,fed_dc}/global_models.py. In this library plain networks
start with another variance: `--grid=model.decomposition.num_atoms=0,9`. controls.py
beside this file also has the mean of the kernels.

Figure 2a is `cifar10_5` of FedDyn; Figure 2c is
`--grid=algorithm.host.cohort_size=2,5,10,20,40` on `cifar10_5` in 200 rounds. The
variance of Figure 2b is computed by binaries.factors. The partitions that the paper
announces without results are `--config.dataset.partition.law=dirichlet` with
`--config.dataset.partition.options="{'concentration': 0.3}"`, see docs/partitions.md.

Clients, networks and variants: configs/few_classes.py. At full size `cifar10_5` was run,
and diverges with factors: docs/reproduction/filter_decomposition.md.
The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import few_classes


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config(
    'filter_decomposition', variant, personal=False
  )
  config.name = f'Filter decomposition, global models, {variant}'
  config.model.decomposition.num_atoms = 9
  config.algorithm.local_atoms.update(
    local_training=config.algorithm.host.local_training
  )
  return config
