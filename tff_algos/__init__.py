"""Clustered and personalized federated learning on TensorFlow Federated.

An experiment is a config: a dataset, a model, an algorithm, a runtime. A run is
what lies in its folder.

>>> import tff_algos
>>> experiment = tff_algos.Experiment.from_config(
...   'fed_soft/digits:smoke', workdir='runs/digits', training={'num_rounds': 2}
... )
>>> experiment.config.algorithm.name, experiment.config.training.num_rounds
('fed_soft', 2)
>>> with experiment.build_dataset() as dataset:
...   x, y, source = dataset.examples('client_00003', 'train')
>>> x.shape[1:], y.dtype
((8, 8, 1), dtype('int32'))

`experiment.fit()` trains it; then `evaluate()`, `plot()`, `export()`. The
notebooks in docs/notebooks use all of it.

Each name is imported when it is first used, and with it what it needs:
TensorFlow to train, export and serve; nothing of it to read datasets or to draw
reports.
"""

import importlib

__version__ = '0.1.0'

# Name -> where it is defined, with a dot in this package; `__init__.pyi` says
# the same to type checkers.
_PUBLIC = {
  # An experiment from its dataset to its bundles.
  'Experiment': '.experiments.interactive:Experiment',
  # What an algorithm and a model are, and all of them by name.
  'FederatedAlgorithm': '.core.algorithm:FederatedAlgorithm',
  'Model': '.core.model:Model',
  'ALGORITHMS': '.algorithms.registry:ALGORITHMS',
  'MODELS': '.models.registry:MODELS',
  'parse_algorithm': '.algorithms.registry:parse_config',
  'build_algorithm': '.algorithms.registry:build_algorithm',
  'ModelConfig': '.models.model_options:ModelConfig',
  'parse_model': '.models.registry:parse_config',
  'build_model': '.models.registry:build_model',
  'RuntimeConfig': '.runtimes.registry:RuntimeConfig',
  'build_runtime': '.runtimes.registry:build_runtime',
  # Models and plug-ins of one's own; docs/own_models.md.
  'from_keras': '.models.keras_models:from_keras',
  'KerasConfig': '.models.keras_models:KerasConfig',
  'replace_batch_norm': '.models.keras_models:replace_batch_norm',
  'from_functional': '.models.functional_models:from_functional',
  'register_algorithm': '.algorithms.registry:register_algorithm',
  'register_model': '.models.registry:register_model',
  'register_source': 'pipelines.sources.registry:register_source',
  'load_plugins': '.core.plugins:load',
  # TFF's own computations and processes; docs/tff.md.
  'federated': '.rounds.federated:build_federated_phases',
  'learning_process': '.rounds.learning_process:build_learning_process',
  'with_aggregators': '.rounds.aggregation_processes:with_aggregators',
  # A round loop of one's own, in memory; an example is in its docstring.
  'Simulation': '.training.simulation:Simulation',
  'ArraySource': '.runtimes.client_sources:ArraySource',
  'draw_batches': '.stages.client.local_training:draw_batches',
  # The steps of an experiment as functions of a config and a folder, which
  # programs and `Experiment` call.
  'ExperimentConfig': '.experiments.experiment:ExperimentConfig',
  'load_config': '.experiments.config_file:load',
  'parse_experiment': '.experiments.experiment:parse',
  'open_session': '.experiments.session:open_session',
  'train': '.experiments.training:train',
  'evaluate': '.experiments.evaluating:evaluate',
  'export_models': '.experiments.exporting:export',
  'write_report': '.reports.run.page:write_report',
  # Federated datasets.
  'FederatedDataset': '.data.dataset:FederatedDataset',
  'ClientExamples': '.data.client_examples:ClientExamples',
  # Datasets of own data in memory.
  'from_arrays': '.experiments.own_data.conversion:from_arrays',
  'from_client_data': '.experiments.own_data.conversion:from_client_data',
  'from_huggingface': '.experiments.own_data.conversion:from_huggingface',
  'from_pandas': '.experiments.own_data.conversion:from_pandas',
  # Exported models.
  'ModelStore': '.serving.models:ModelStore',
  'ServerConfig': '.serving.server_config:ServerConfig',
  'serve': '.serving.server:serve_until_signal',
  # What a person can mend is a UserError; anything else is a bug of ours.
  'UserError': '.core.errors:UserError',
}

__all__ = ['__version__', *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
  """Imports a public name at its first use (PEP 562)."""
  if name not in _PUBLIC:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module, _, attribute = _PUBLIC[name].partition(':')
  found = getattr(importlib.import_module(module, __name__), attribute)
  globals()[name] = found
  return found


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
