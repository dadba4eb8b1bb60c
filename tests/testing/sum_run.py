"""A run of the running sum: a training that can be worked out by hand."""

from tests.testing import recorder, running_sum
from tff_algos.runtimes import debug_runtime
from tff_algos.training import checkpoint, loop


class SumRun:
  """The running sum, or an algorithm made of it, in a folder; its seed is 0."""

  def __init__(self, folder, algorithm=None, clients=((1.0,), (2.0, 3.0))):
    self.algorithm = algorithm or running_sum.algorithm()
    self.source = running_sum.source(*clients)
    self.checkpoints = checkpoint.CheckpointManager(folder, {})
    self.store = loop.build_store(
      self.algorithm,
      self.source.population,
      0,
      self.checkpoints.states_folder,
      'memory',
    )
    self.recorder = recorder.Recorder()

  def train(self, num_rounds, evaluator=None, **options):
    num_clients = self.source.population.num_clients
    with debug_runtime.DebugRuntime(self.algorithm, num_clients) as runtime:
      return loop.train(
        self.algorithm,
        runtime,
        self.source,
        self.store,
        self.checkpoints,
        evaluator or recorder.NoEvaluation(),
        self.recorder,
        loop.TrainingConfig(num_rounds, **options),
        0,
      )
