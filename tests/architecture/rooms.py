"""The rooms of the project, and which may import which."""

CORE = 'tff_algos.core'
NUMERICS = 'tff_algos.numerics'
MODELS = 'tff_algos.models'
METRICS = 'tff_algos.metrics'
CONSENSUS = 'tff_algos.consensus'
STAGES = 'tff_algos.stages'
ALGORITHMS = 'tff_algos.algorithms'
DATA = 'tff_algos.data'
RUNTIMES = 'tff_algos.runtimes'
EXPORT = 'tff_algos.export'
SERVING = 'tff_algos.serving'
REPORTS = 'tff_algos.reports'
MACHINE = 'tff_algos.machine'

# room -> the rooms that it may import, besides itself.
MAY_IMPORT = {
  CORE: set(),
  NUMERICS: {CORE},
  MODELS: {CORE, NUMERICS},
  METRICS: {CORE, NUMERICS},
  STAGES: {CORE, NUMERICS, METRICS},
  CONSENSUS: {CORE},
  ALGORITHMS: {CORE, NUMERICS, METRICS, STAGES, CONSENSUS},
  DATA: {CORE},
  RUNTIMES: {CORE, NUMERICS, METRICS, STAGES, DATA},
  EXPORT: {CORE, MODELS},
  SERVING: {CORE, EXPORT},
  REPORTS: {CORE, DATA, METRICS, CONSENSUS},
  MACHINE: {CORE, RUNTIMES},
  'tff_algos': set(),
  'pipelines': {CORE, DATA, EXPORT, SERVING},
  'configs': set(),
}
MAY_IMPORT['binaries'] = {*MAY_IMPORT} - {'configs'}
