"""Many rounds of pFedKM's server on the toy of its theory, in no time.

With f_i(theta) = a/2 |theta - c_i|^2 and exact solves, an upload is
c_i + q^R (w - c_i), w being the model that was sent (Tang, Guo and Guo 2021). So
only the server is the library's.
"""

import numpy as np
import tensorflow as tf

from tests.testing import points
from tff_algos.algorithms.pfedkm import pfedkm
from tff_algos.rounds import aggregation

GROUPS = np.repeat([0, 1, 2], 10)


def planted(seed):
  """Returns c_i of 30 clients in three groups: N(0, 9 I) and N(0, 0.09 I)."""
  generator = np.random.default_rng(seed)
  centers = 3 * generator.normal(size=(3, 8))
  return centers[GROUPS] + 0.3 * generator.normal(size=(30, 8))


class Rounds:
  """The server's update, traced once, with uploads by the closed form."""

  def __init__(self, **options):
    """Builds it for three clusters of points in 8 dimensions and a PFedKMConfig."""
    algorithm = pfedkm.build_pfedkm(
      points.model(8), pfedkm.PFedKMConfig(num_clusters=3, **options)
    )
    phase = algorithm.phases['train']

    def update(state, uploads):
      num_clients = tf.shape(uploads)[0]

      def collect(values):
        everyone = tf.fill([num_clients], True)
        return aggregation.Collected(values, tf.range(num_clients), everyone)

      return phase.server_update(
        state,
        {
          'local_weights': collect({'point': uploads}),
          'client_weight': collect(tf.ones([num_clients])),
        },
      )

    self._update = tf.function(update, autograph=False)

  def run(self, centers, factor, num_rounds, models=None, assignment=None):
    """Yields (models before, assignment before, metrics) of each round.

    And at last the models and the assignment that it ends with, and None.

    Args:
      centers: c_i, `[num_clients, 8]`.
      factor: q^R, how much an upload remembers of the model that was sent.
      num_rounds: How many rounds.
      models: Of the clusters at the start, `[3, 8]`; None for ones.
      assignment: Of the clients at the start; None for one after the other.
    """
    if models is None:
      models = np.ones((3, centers.shape[1]))
    if assignment is None:
      assignment = np.arange(len(centers)) % 3
    state = pfedkm.ServerState(
      {'point': tf.constant(models, tf.float32)},
      tf.constant(assignment, tf.int32),
      tf.constant([1, 2]),
    )
    for _ in range(num_rounds):
      models = state.cluster_models['point'].numpy().astype(np.float64)
      assignment = state.cluster_assignment.numpy()
      uploads = centers + factor * (models[assignment] - centers)
      state, metrics = self._update(state, tf.constant(uploads, tf.float32))
      yield models, assignment, metrics
    yield (
      state.cluster_models['point'].numpy(),
      state.cluster_assignment.numpy(),
      None,
    )
