r"""BrainTorrent on real handwritten digits: one client at a time, no server.

  python -m binaries.run --config=configs/brain_torrent/digits.py \
    --workdir=runs/brain_torrent_digits

The same 24 clients as configs/fed_avg/digits.py. In round 1 all clients train; in each
of the 480 later rounds one client, drawn uniformly, fetches the updated models, merges
and trains, so that each client trains 20 more times on average; 12 models are fetched
per round on average. Test accuracy on the clients' examples at the end, seed 0, one
run: 90.8 % with their own models (100 % on their training examples), 91.5 % with the
mean of all models, which has 94.6 % on held-out upright digits and 92.6 % on rotated
ones.

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections

from configs import digits


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `digits.get_config`."""
  config = digits.get_config('brain_torrent', variant)
  config.name = 'BrainTorrent on digits, 10:90'
  if variant != 'smoke':
    config.training.update(
      num_rounds=481, evaluation_interval=24, checkpoint_interval=120
    )
  return config
