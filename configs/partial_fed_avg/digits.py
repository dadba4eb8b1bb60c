r"""Partial personalization on real handwritten digits: FedPer and its relatives.

  python -m binaries.run --config=configs/partial_fed_avg/digits.py:fed_rep \
    --workdir=runs/fed_rep_digits

The same 24 clients as configs/fed_avg/digits.py. The variants:

  fed_per      private head, trained together with the body (the default)
  lg_fed_avg   private body, shared head
  fed_rep      private head, trained for 10 epochs, then the body for 1
  fed_alt      private body, trained for 5 epochs, then the head for 10; after
               the last round 5 epochs of the body alone
  local        all weights private: local training without communication

Accuracy on the clients' 293 test examples after 30 rounds (seed 0): `fed_per` 81.6 %,
`lg_fed_avg` 76.1 %, `fed_rep` 77.1 %, `fed_alt` 75.1 %, `local` 72.7 %; FedAvg has
90.4 %. The clients share their labels and have some 60 training examples each, so
private weights lose the information of other clients. New users get a combination of weights
that were never trained together, with an accuracy on the clients' test examples of
56.3 % for `fed_per`, 23 % to 40 % for the others, and 12.6 % for `local`, where it is
the initial model.

The variant `smoke` is `fed_per` with 3 rounds.
"""

import ml_collections

from configs import digits

_VARIANTS = ('fed_per', 'lg_fed_avg', 'fed_rep', 'fed_alt', 'local')


def get_config(variant: str = 'fed_per') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('partial_fed_avg', variant, _VARIANTS)
  config.name = f'Partial personalization on digits, 10:90, {variant}'
  if variant in ('lg_fed_avg', 'fed_alt'):
    config.algorithm.private = ('all_but_last_layer',)
  elif variant == 'local':
    config.algorithm.private = ('all',)
  if variant in ('fed_rep', 'fed_alt'):
    config.algorithm.schedule = 'private_first'
  if variant == 'fed_rep':
    config.algorithm.local_training.num_local_epochs = 1
  elif variant == 'fed_alt':
    config.algorithm.private_training.num_local_epochs = 5
    config.algorithm.personalization_interval = config.training.get_oneway_ref(
      'num_rounds'
    )
  return config
