"""The rooms of the project, and which may import which."""

CORE = 'tff_algos.core'
NUMERICS = 'tff_algos.numerics'
MODELS = 'tff_algos.models'
FEATURES = 'tff_algos.features'
STORES = 'tff_algos.stores'
DATA = 'tff_algos.data'
ROUNDS = 'tff_algos.rounds'
STAGES = 'tff_algos.stages'
ADVERSARIES = 'tff_algos.adversaries'
CONSENSUS = 'tff_algos.algorithms.cmfl.consensus'
AUDIT = 'tff_algos.algorithms.cmfl.audit'
ALGORITHMS = 'tff_algos.algorithms'
PRIVACY = 'tff_algos.privacy'
RUNTIMES = 'tff_algos.runtimes'
EVALUATION = 'tff_algos.evaluation'
TRAINING = 'tff_algos.training'
EXPORT = 'tff_algos.export'
SERVING = 'tff_algos.serving'
REPORTS = 'tff_algos.reports'
DIAGNOSTICS = 'tff_algos.diagnostics'
EXPERIMENTS = 'tff_algos.experiments'

# room -> the rooms that it may import, besides itself.
MAY_IMPORT = {
  CORE: set(),
  NUMERICS: {CORE},
  MODELS: {CORE, NUMERICS},
  FEATURES: {CORE},
  STORES: {CORE},
  DATA: {CORE, FEATURES, STORES},
  ROUNDS: {CORE, NUMERICS},
  STAGES: {CORE, NUMERICS, ROUNDS},
  ADVERSARIES: {CORE, NUMERICS, ROUNDS},
  CONSENSUS: {CORE, ADVERSARIES},
  AUDIT: {CORE, CONSENSUS},
  ALGORITHMS: {CORE, NUMERICS, ROUNDS, STAGES, CONSENSUS, AUDIT},
  PRIVACY: {CORE, NUMERICS, ROUNDS, ALGORITHMS},
  RUNTIMES: {CORE, NUMERICS, ROUNDS, DATA},
  EVALUATION: {CORE, NUMERICS, ROUNDS, DATA, RUNTIMES},
  TRAINING: {CORE, NUMERICS, ROUNDS, DATA, RUNTIMES, EVALUATION},
  EXPORT: {CORE, MODELS, FEATURES},
  SERVING: {CORE, EXPORT, FEATURES},
  REPORTS: {CORE, DATA, EVALUATION, AUDIT},
  DIAGNOSTICS: {CORE, RUNTIMES},
  'tff_algos': set(),
  'pipelines': {CORE, DATA, EXPORT, FEATURES, SERVING, STORES},
  # `configs/base.py` alone, for the options of an experiment.
  'configs': {CORE, MODELS, ALGORITHMS, EXPERIMENTS, 'pipelines'},
}
MAY_IMPORT[EXPERIMENTS] = {*MAY_IMPORT} - {'configs', 'tff_algos'}
MAY_IMPORT['binaries'] = {*MAY_IMPORT} - {'configs'}
