r"""Fine-tuned models of FedAvg on clients of few classes.

  python -m binaries.sweep --config=configs/fine_tuning/personal_models.py \
    --also=:cifar10_5,:cifar100_5,:cifar100_20,:tiny_imagenet_20,:tiny_imagenet_50 \
    --num_seeds=3 --workdir=runs/fine_tuning

Every client fine-tunes the last global model for 10 epochs. For FedProx set
`--config.algorithm.global_proximal_weight=0.0001`. A row of Table 2 of Chen and Qiu
(2025), arXiv:2503.08652. Clients, networks and variants: configs/few_classes.py. The
full size has not been run. The variant `smoke` needs no data: the scikit-learn digits,
2 rounds.
"""

import ml_collections

from configs import few_classes


def get_config(variant: str = 'cifar10_2') -> ml_collections.ConfigDict:
  """Returns the config of one variant of `few_classes.VARIANTS`."""
  config = few_classes.get_config('fine_tuning', variant, personal=True)
  config.name = f'FedAvg and fine-tuning, personal models, {variant}'
  # Only evaluations need fine-tuned models: evaluate once, at the end.
  config.training.evaluation_interval = config.training.get_oneway_ref(
    'num_rounds'
  )
  config.algorithm.update(
    # The number, which does not follow: stored results are of longer trainings.
    personalization_interval=config.training.num_rounds,
    personal_training=config.algorithm.local_training,
  )
  return config
