r"""Filter decomposition with local atoms: Tables 2 and 3.

  python -m binaries.sweep --config=configs/filter_decomposition/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --grid=model.decomposition.num_atoms=3,6,9,12 --num_seeds=3 \
    --workdir=runs/table_3

is Table 3, and with nine atoms the last row of Table 2. Its other rows are
personal_models.py of configs/{fine_tuning,ditto,partial_fed_avg,fed_pac}. The compared
metric is participating/test/personalized/accuracy.

All rows of Table 2 but FedProx + FT side by side, on the small variant of
Fashion-MNIST, 20 rounds (`fashion_mnist_2` and `fashion_mnist_5` are the full size,
with two or five classes):

  of=personal_models.py:fashion_mnist_small
  python -m binaries.sweep --config=configs/filter_decomposition/personal_models.py:fashion_mnist_small \
    --also=configs/fine_tuning/$of,configs/ditto/$of,configs/fed_pac/$of,\
configs/partial_fed_avg/$of,configs/partial_fed_avg/${of}_lg_fed_avg,\
configs/partial_fed_avg/${of}_fed_rep,configs/partial_fed_avg/${of}_local \
    --config.dataset.source.options.folder=DIR --workdir=runs/table_2_small

For private heads as well, set `--config.algorithm.local_atoms.own=atoms_and_head`. To
fit the atoms once, after the last round, set `in_every_round=False` and
`refit_interval` to the number of rounds.

Clients, networks and variants: configs/few_classes.py. The full size has not been run.
The variant `smoke` needs no data: the scikit-learn digits, 2 rounds.
"""

import ml_collections

from configs import few_classes


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config(
    'filter_decomposition', variant, personal=True
  )
  config.name = f'Filter decomposition, local atoms, {variant}'
  config.model.decomposition.num_atoms = 9
  config.algorithm.local_atoms.update(
    own='atoms', local_training=config.algorithm.host.local_training
  )
  return config
