"""Registries without what a test adds to them."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def kept() -> Iterator[None]:
  """Removes what plug-ins register inside; their modules are forgotten."""
  from pipelines.sources import registry as sources
  from tff_algos.algorithms import registry as algorithms
  from tff_algos.models import registry as models

  registries = (algorithms.ALGORITHMS, models.MODELS, sources.SOURCES)
  before = [dict(registry) for registry in registries]
  imported = set(sys.modules)
  yield
  for registry, entries in zip(registries, before, strict=True):
    for name in set(registry) - set(entries):
      module = registry.pop(name).build.__module__.partition('.')[0]
      for one in set(sys.modules) - imported:
        if one.partition('.')[0] == module:
          del sys.modules[one]
