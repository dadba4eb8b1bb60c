from pipelines.sources.registry import register_source
from tff_algos.algorithms.registry import (
  ALGORITHMS,
  build_algorithm,
  register_algorithm,
)
from tff_algos.algorithms.registry import parse_config as parse_algorithm
from tff_algos.core.algorithm import FederatedAlgorithm
from tff_algos.core.errors import UserError
from tff_algos.core.model import Model
from tff_algos.core.plugins import load as load_plugins
from tff_algos.data.client_examples import ClientExamples
from tff_algos.data.dataset import FederatedDataset
from tff_algos.experiments.config_file import load as load_config
from tff_algos.experiments.evaluating import evaluate
from tff_algos.experiments.experiment import ExperimentConfig
from tff_algos.experiments.experiment import parse as parse_experiment
from tff_algos.experiments.exporting import export as export_models
from tff_algos.experiments.interactive import Experiment
from tff_algos.experiments.own_data.conversion import (
  from_arrays,
  from_client_data,
  from_huggingface,
  from_pandas,
)
from tff_algos.experiments.session import open_session
from tff_algos.experiments.training import train
from tff_algos.models.functional_models import from_functional
from tff_algos.models.keras_models import (
  KerasConfig,
  from_keras,
  replace_batch_norm,
)
from tff_algos.models.model_options import ModelConfig
from tff_algos.models.registry import MODELS, build_model, register_model
from tff_algos.models.registry import parse_config as parse_model
from tff_algos.reports.run.page import write_report
from tff_algos.rounds.aggregation_processes import (
  with_aggregators as with_aggregators,
)
from tff_algos.rounds.federated import build_federated_phases as federated
from tff_algos.rounds.learning_process import (
  build_learning_process as learning_process,
)
from tff_algos.runtimes.client_sources import ArraySource
from tff_algos.runtimes.registry import RuntimeConfig, build_runtime
from tff_algos.serving.models import ModelStore
from tff_algos.serving.server import serve_until_signal as serve
from tff_algos.serving.server_config import ServerConfig
from tff_algos.stages.client.local_training import draw_batches
from tff_algos.training.simulation import Simulation

__version__: str

__all__ = [
  '__version__',
  'Experiment',
  'FederatedAlgorithm',
  'Model',
  'ALGORITHMS',
  'MODELS',
  'parse_algorithm',
  'build_algorithm',
  'ModelConfig',
  'parse_model',
  'build_model',
  'RuntimeConfig',
  'build_runtime',
  'from_keras',
  'KerasConfig',
  'replace_batch_norm',
  'from_functional',
  'register_algorithm',
  'register_model',
  'register_source',
  'load_plugins',
  'federated',
  'learning_process',
  'with_aggregators',
  'Simulation',
  'ArraySource',
  'draw_batches',
  'ExperimentConfig',
  'load_config',
  'parse_experiment',
  'open_session',
  'train',
  'evaluate',
  'export_models',
  'write_report',
  'FederatedDataset',
  'ClientExamples',
  'from_arrays',
  'from_client_data',
  'from_huggingface',
  'from_pandas',
  'ModelStore',
  'ServerConfig',
  'serve',
  'UserError',
]
