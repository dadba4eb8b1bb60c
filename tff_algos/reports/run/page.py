"""Report of a run: pictures and the index page."""

import os
import pathlib

from tff_algos.evaluation import round_time
from tff_algos.reports.plotting import html, picture, style
from tff_algos.reports.run import (
  drift_report,
  lineage_table,
  summary,
  warning_texts,
)
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import (
  accuracy_plot,
  atoms_plot,
  centers_plot,
  clients_plot,
  cluster_map_plot,
  committee_bins_plot,
  committee_plot,
  confusion_plot,
  cost_plot,
  drift_plot,
  membership_maps_plot,
  membership_rounds_plot,
  memberships_plot,
  panels_plot,
  planted_distances_plot,
  time_curves_plot,
  time_plot,
)

PICTURES = (
  accuracy_plot.PICTURE,
  membership_rounds_plot.PICTURE,
  memberships_plot.PICTURE,
  cluster_map_plot.PICTURE,
  panels_plot.REGROUPING,
  membership_maps_plot.PICTURE,
  confusion_plot.PICTURE,
  centers_plot.PICTURE,
  clients_plot.PICTURE,
  cost_plot.PICTURE,
  committee_plot.PICTURE,
  committee_bins_plot.PICTURE,
  time_plot.PICTURE,
  time_curves_plot.PICTURE,
  atoms_plot.PICTURE,
  panels_plot.RECOVERY,
  planted_distances_plot.PICTURE,
  drift_plot.PICTURE,
)

_PLACES = (
  ('config.json', 'the config, resolved, and its hash'),
  ('dataset', 'the federated dataset'),
  ('metrics.csv', 'all metrics, one row per round'),
  ('tensorboard', 'the same metrics for TensorBoard'),
  ('memberships', "the clients' memberships, one array per evaluation"),
  ('audit', 'audit log of the committees, one line per round'),
  (
    'evaluation/summary.json',
    'scores of evaluated and best round, majority class',
  ),
  ('evaluation/clients.csv', 'one row per client'),
  ('evaluation/centers.csv', 'scores of every cluster model on every source'),
  ('evaluation/association.csv', 'confusion matrix of sources and clusters'),
  ('evaluation/factors.csv', 'update variance of a round, latent clients'),
  ('evaluation/atoms.csv', 'filter atoms and norms of their coefficients'),
  ('evaluation/own_atoms.csv', "distances of clients' own from global atoms"),
  ('drift.json', "drift of the data from the parent run's"),
  ('drift_clients.csv', 'drift of each client'),
  ('gate.json', 'comparison with the exported models before a release'),
  ('lineage.json', 'raw files, dataset, parent run, gate and releases'),
  ('checkpoints', 'server and client states'),
  ('export/cluster_models', 'SavedModels of the clusters, for new clients'),
  ('export/personalized_models', 'SavedModels for known clients'),
)


def write_report(
  workdir: str | os.PathLike[str],
  clock: round_time.Clock = round_time.Clock(),
) -> pathlib.Path:
  """Draws a run's pictures and writes its index page.

  Reads only files of the run. Files are written to temporary files and renamed,
  the page last; an earlier report is replaced. The output is deterministic.

  Args:
    workdir: Folder of a trained and evaluated run.
    clock: Virtual clock of the pictures of time.

  Returns:
    `<workdir>/report/index.html`.

  Raises:
    DataError: If a file is missing or damaged; names the file and the command
      that writes it.
  """
  run = run_lib.read(workdir, clock)
  pictures = picture.draw_all(PICTURES, run)
  return picture.publish(run.workdir, pictures, _render(run, pictures))


def _render(run: run_lib.Run, pictures: list[picture.Drawn]) -> str:
  rows = summary.rows(run)
  return html.render(
    'run/page.html.jinja',
    run=run,
    heading=summary.heading(run),
    measure=style.score_word(run),
    rows=rows,
    names_clusters=any(row.label.startswith('best cluster') for row in rows),
    drift=run.drift and drift_report.rows(run.drift),
    warnings=warning_texts.sentences(run),
    pictures=pictures,
    places=[
      (name, what) for name, what in _PLACES if (run.workdir / name).exists()
    ],
    lineage=lineage_table.rows(run.workdir, run.run_hash),
    settings=html.flatten(run.config),
  )
