import numpy as np

from tests.testing import toys
from tff_algos.algorithms import ifca
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import tff_compat
from tff_algos.rounds import description, phase_types
from tff_algos.stages.clusters import initialization
from tff_algos.training import loop

_FED_SOFT = """\
fed_soft: 4 clients, 2 cluster models
W  weights of the model, 12 bytes: <kernel=float32[3,1]>
S  server state, 56 bytes: <cluster_models=W[2],importance_weights=float32[4,2]>
C  client state, 16 bytes: <personalized_weights=W,num_updates=int32>
D  examples of a client: <x=float32[?,3],y=float32[?],mask=float32[?]>

round 1: estimate_importance (3 clients), train (3 clients)
round 2: train (3 clients)
round 3: estimate_importance (3 clients), train (3 clients)
round 4: train (3 clients)

phase estimate_importance
  make_message  (S -> W[2])@SERVER
  client_work   {(<message=W[2],client_input=<>,client_state=<>,data=D,
                seed=int32[2]> -> <result=<importance_weights=float32[2]>,
                client_state=<>,metrics=<assigned_loss=<total=float32,
                weight=float32>>>)}@CLIENTS
  aggregation   importance_weights by Collect(): ({float32[2]}@CLIENTS ->
                <values=float32[?,2],client_index=int32[?],is_valid=bool[?]>@SERVER)
  server_update (<S,importance_weights> -> <S,<>>)@SERVER
  down          24 bytes per client; 72 for 3 clients
  up            8 bytes per client; 24 for 3 clients

phase train
  make_message  (S -> W[2])@SERVER
  client_work   {(<message=W[2],client_input=<importance_weights=float32[2],
                cluster_weights=float32[2]>,client_state=C,data=D,seed=int32[2]> ->
                <result=<local_weights=W,cluster_weights=float32[2]>,client_state=C,
                metrics=<loss=<total=float32,weight=float32>>>)}@CLIENTS
  aggregation   local_weights by ClusterMean(cluster_weights): ({W}@CLIENTS ->
                <value=W[2],weight=float32[2]>@SERVER)
  server_update (<S,local_weights> -> <S,<num_empty_clusters=int32>>)@SERVER
  down          40 bytes per client; 120 for 3 clients
  up            20 bytes per client; 60 for 3 clients"""


def _describe(algorithm, num_examples):
  population = algorithm_lib.Population(
    tuple('abcd'[: len(num_examples)]), np.array(num_examples)
  )
  state = loop.initial_server_state(algorithm, population.num_clients, 0)
  return description.describe(algorithm, population, state, 0)


def test_fed_soft_in_full():
  config = fed_soft.FedSoftConfig(selection='weighted_full')
  built = fed_soft.build_fed_soft(toys.linear(3), config)
  assert _describe(built, [5, 0, 2, 9]) == _FED_SOFT


def test_types_are_spelled_as_by_tff():
  config = ifca.IfcaConfig(
    initialization=initialization.InitializationConfig('k-means++')
  )
  built = ifca.build_ifca(toys.linear(3), config)
  for types in phase_types.check_algorithm(built).values():
    for spec in (types.server_state, types.clients, types.message):
      assert phase_types.spell(spec) == str(tff_compat.to_type(spec))
