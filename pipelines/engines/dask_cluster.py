"""Dask clusters: the project made importable in their processes."""

import functools
import pathlib
import site
from typing import TYPE_CHECKING

from apache_beam.options import pipeline_options as beam_options

if TYPE_CHECKING:
  import distributed

_PROJECT = pathlib.Path(__file__).parents[2]


def share_project(options: beam_options.PipelineOptions) -> None:
  """Registers this project with the cluster of a pipeline, if it has one.

  Args:
    options: Beam's pipeline options; without an address Dask's workers are
      children of this process and import what it does.

  Raises:
    OSError: If the scheduler cannot be reached.
  """
  # Dask is an extra, and slow to import.
  import distributed
  from apache_beam.runners.dask import dask_runner

  given = options.view_as(dask_runner.DaskOptions).get_all_options(
    drop_default=True, current_only=True
  )
  connection = {
    name: given[name]
    for name in ('address', 'timeout', 'scheduler_file')
    if name in given
  }
  if not {'address', 'scheduler_file'} & connection.keys():
    return
  with distributed.Client(**connection, set_as_default=False) as client:
    register_project(client)


def register_project(client: 'distributed.Client') -> None:
  """Adds this project's folder to `sys.path` of scheduler and workers.

  `dask scheduler` and `dask worker` do not import from the folder in which they
  are started. Processes that join the cluster later, or replace a lost one, get
  the folder as well. An installed package takes precedence over it.

  Args:
    client: Client of the cluster.
  """
  from distributed.diagnostics import plugin as plugins

  plugin = plugins.InstallPlugin(
    functools.partial(site.addsitedir, str(_PROJECT)), restart_workers=False
  )
  plugin.name = f'project {_PROJECT}'  # Registered once, whatever is built.
  client.register_plugin(plugin)
