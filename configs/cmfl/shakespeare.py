r"""CMFL on Shakespeare: next-character prediction by role.

  python -m binaries.run --config=configs/cmfl/shakespeare.py:similar \
    --workdir=runs/cmfl_shakespeare --config.dataset.source.options.folder=DIR

DIR holds speeches.jsonl, a JSON object of `play`, `role` and `text` in each line,
plain, as .gz or as .xz. 143 roles are drawn, as many as in the paper; windows of 80
characters start at every tenth character, and 80 % of a role's windows are training
examples. (In LEAF a window starts at every character, `stride=1`; the longest roles
then have too many windows to evaluate at once in little memory.) The variants are those
of configs/committees.py except `literal`: of 143 clients 15 are active, a committee of
6 and 9 training clients, of which 5 are averaged. Two LSTM layers of 100 units on
embeddings of 8 numbers, 132,720 parameters.

Measured (51,720 training and 13,006 test windows), three seeds, 100 rounds: the global
model has a test accuracy of 22.3 % on the clients' windows with `similar`, 40.4 % with
`random`, 42.7 % with `dissimilar` and with `everybody`; the most frequent character
alone gives 16.4 % (docs/reproduction/cmfl.md).

Deviations from the paper (Che et al., arXiv 2108.00365): the roles are another draw,
and the plays another edition. It gives neither learning rate nor batch size for this
set; 0.8 and 10 are those of FedProx (Li et al., arXiv:1812.06127) for the same network.
The authors' published runs, as `repo`, have 256 units, batches of 32 and a learning
rate of 0.005 (0.05 under attack).

Windows overlap, so a test window shares most of its text with training windows. With
`--config.dataset.source.options.stride=81` they do not overlap.

The variant `smoke` needs no data and no text: 12 clients train a perceptron on the
scikit-learn digits.
"""

import ml_collections

from configs import base, committees

VARIANTS = tuple(v for v in committees.VARIANTS if v != 'literal')


def get_config(variant: str = 'similar') -> ml_collections.ConfigDict:
  """Returns the config of one variant."""
  base.check(variant, VARIANTS)
  if variant == 'smoke':
    config = committees.get_text_smoke()
  else:
    config = committees.get_text(
      variant, model='character_lstm', source='shakespeare'
    )
    config.dataset.source.options.update(
      file='speeches.jsonl', window=80, stride=10
    )
    config.dataset.partition.update(
      num_clients=143, options={'min_examples': 10}
    )
    if variant == 'repo':
      config.model.hidden_size = 256
    else:
      config.algorithm.local_training.batch_size = 10
      config.algorithm.local_training.optimizer.learning_rate = 0.8
  config.name = f'CMFL on Shakespeare, {variant}'
  return config
