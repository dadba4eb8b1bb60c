r"""FedAvg with fine-tuning on real handwritten digits, upright and rotated.

  python -m binaries.run --config=configs/fine_tuning/digits.py \
    --workdir=runs/fine_tuning_digits

The same 24 clients as configs/fed_avg/digits.py, and the same global model, which
every client fine-tunes for 10 epochs after the last round. The variant `proximal` adds
a proximal term to the global model in fine-tuning (weight 0.1); `fed_prox` adds
FedProx's proximal term in the training of the global model.

After 30 rounds (seed 0) the fine-tuned models have 90.1 % on the clients' 293 test
examples, those of `proximal` 89.8 %, and the global model has 90.4 %.

The variant `smoke` is the first with 3 rounds.
"""

import ml_collections

from configs import digits

_VARIANTS = ('full', 'proximal', 'fed_prox')


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('fine_tuning', variant, _VARIANTS)
  config.name = f'FedAvg and fine-tuning on digits, 10:90, {variant}'
  # Only evaluations need fine-tuned models: evaluate once, at the end.
  config.training.evaluation_interval = config.training.get_oneway_ref(
    'num_rounds'
  )
  config.algorithm.update(
    proximal_weight=0.1 if variant == 'proximal' else 0.0,
    personalization_interval=config.training.get_oneway_ref('num_rounds'),
    global_proximal_weight=1e-4 if variant == 'fed_prox' else 0.0,
  )
  return config
