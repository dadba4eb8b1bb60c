"""The report: pictures and an index page, written so that none is half-made."""

import os
import pathlib
import tempfile
import types
from typing import NamedTuple

from tff_algos.evaluation import round_time
from tff_algos.reports.plotting import html, style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import summary, warning_texts
from tff_algos.reports.run.plots import (
  accuracy_plot,
  association_plot,
  atoms_plot,
  centers_plot,
  clients_plot,
  cluster_map_plot,
  committee_bins_plot,
  committee_plot,
  cost_plot,
  membership_maps_plot,
  membership_rounds_plot,
  memberships_plot,
  planted_distances_plot,
  recovery_plot,
  regrouping_plot,
  time_curves_plot,
  time_plot,
)

_INDEX = 'index.html'


class Picture(NamedTuple):
  """A picture of the report.

  Attributes:
    name: Its file name.
    module: Its `draw` takes a Run and returns a Figure, or None if the run has
      nothing to draw.
    caption: How to read it.
  """

  name: str
  module: types.ModuleType
  caption: str


PICTURES = (
  Picture(
    'accuracy.png',
    accuracy_plot,
    'Every cluster model on held-out examples of each source distribution, in '
    'the colour of the source that it stands for; thick: the best at the end. '
    "Last panel: the clients' own test examples. Dotted: always saying the "
    "commonest label of the client's training part.",
  ),
  Picture(
    'membership_rounds.png',
    membership_rounds_plot,
    'The mean membership of clients with the same planted mixture, in the '
    'colours of the clusters; dashed: the true shares. With many mixtures, '
    'clients of one main source are taken together.',
  ),
  Picture(
    'memberships.png',
    memberships_plot,
    'How far each participating client belongs to each cluster, beside the '
    'mixture that its data was drawn from. Clusters have no '
    'order of their own; each is matched to a source so that all clients '
    'together agree best.',
  ),
  Picture(
    'cluster_map.png',
    cluster_map_plot,
    'The cluster of largest membership, a row a client and a column an '
    'evaluation. Dashed: the round after which no client changes. Undecided: '
    'the client belongs to all clusters alike.',
  ),
  Picture(
    'regrouping.png',
    regrouping_plot,
    'What was uploaded, and how k-means clustered it. Where uploads remember '
    'nearly all of the model that was sent, clients cannot change cluster, and '
    'that nobody does says nothing about the clusters. Iterations are those of '
    'the best restart.',
  ),
  Picture(
    'membership_maps.png',
    membership_maps_plot,
    'A row a client, a column a cluster, clusters in the order of the sources '
    'that they are matched to. Where a column is dark for the clients of one '
    'source alone, the cluster has found it.',
  ),
  Picture(
    'association.png',
    association_plot,
    'Clients by the source of most of their data. Left: how many have their '
    'largest membership in each cluster (the confusion matrix). Right: their '
    'mean membership of each cluster.',
  ),
  Picture(
    'centers.png',
    centers_plot,
    'Every cluster model on every source distribution at the last evaluation, '
    'shaded column by column. '
    'One dark cell in each column, each in another row: the clusters have '
    'specialised.',
  ),
  Picture(
    'clients.png',
    clients_plot,
    "Each client's personalized model beside its cluster's model, on the "
    "client's own test examples. The worst decile is the mean of the worst "
    '10 % of the clients; triangles mark it.',
  ),
  Picture(
    'cost.png',
    cost_plot,
    'What the communication bought: numbers sent from the server to clients '
    'and back, summed over rounds.',
  ),
  Picture(
    'committee.png',
    committee_plot,
    'From the audit log. Left: how often clients were averaged in rounds that '
    'members agreed on. Middle: the scores of all uploads that committees '
    'judged; who is averaged has the highest (strategy I) or the lowest (II) '
    'of a round. Right, under attack: how many attackers had each role.',
  ),
  Picture(
    'committee_bins.png',
    committee_bins_plot,
    'Participating clients by the accuracy of the last model on their own test '
    'examples (bins of 10 points), and how often those of a bin were averaged '
    'on '
    'average; dotted: all clients. Where committees left out whom the model '
    'serves poorly, the bars of low accuracy are the lowest in the right '
    'panel.',
  ),
  Picture(
    'time.png',
    time_plot,
    'What the rounds would take by the cost model of CMFL (TPDS 2022, section '
    '6.5): one transfer after the other, seconds of computation as in its '
    "authors' code. Re-timed systems have the same clients and model, and "
    'formulas in place of rounds; they were not run.',
  ),
  Picture(
    'time_curves.png',
    time_curves_plot,
    'The score over the seconds of that clock in place of rounds. Re-timed: '
    'the '
    'scores of this run after the same rounds, but rounds as long as another '
    "system's by formula, as in the figures of CMFL's authors; that system was "
    'not run.',
  ),
  Picture(
    'atoms.png',
    atoms_plot,
    'Written by binaries.factors, of the latest checkpoint. Atoms of a layer '
    'share their colours: red is positive, blue negative; the number is the '
    "norm of the atom's coefficients, the largest first. Right: how far the "
    "clients' own atoms are from the global ones, the farthest first; 0 for "
    'who '
    'never trained any.',
  ),
  Picture(
    'recovery.png',
    recovery_plot,
    "Left: each client's main cluster against its main source; ARI (adjusted "
    'Rand index) is about 0 by chance, NMI (normalized mutual information) '
    'and purity lie between 0 and 1. Right: the mean absolute difference of '
    'memberships and true shares.',
  ),
  Picture(
    'planted_distances.png',
    planted_distances_plot,
    'Half the sum of absolute differences of membership and true shares, '
    'client '
    'by client, at the first and the last evaluation; clusters are matched to '
    'sources at the end. 0: the same shares; 100: nothing in common.',
  ),
)

_PLACES = (
  ('config.json', 'the config, resolved, and its hash'),
  ('dataset', 'the federated dataset'),
  ('metrics.csv', 'all metrics, one row a round'),
  ('tensorboard', 'the same for TensorBoard'),
  ('memberships', "the clients' memberships, one array an evaluation"),
  ('audit', 'what committees saw, decided and became, a line a round'),
  ('evaluation/summary.json', 'last round, best round and majority class'),
  ('evaluation/clients.csv', 'one row a client'),
  ('evaluation/centers.csv', 'every cluster model on every source'),
  ('evaluation/association.csv', 'clusters of the clients of each source'),
  ('evaluation/factors.csv', 'the variance of a round, and latent clients'),
  ('evaluation/atoms.csv', 'filter atoms and the norms of their coefficients'),
  ('evaluation/own_atoms.csv', "distances of clients' own atoms"),
  ('checkpoints', 'server and client states'),
  ('export/cluster_models', 'SavedModels of the clusters, for new users'),
  ('export/personalized_models', 'SavedModels for known clients'),
)


def write_report(
  workdir: str | os.PathLike[str],
  clock: round_time.Clock = round_time.Clock(),
) -> pathlib.Path:
  """Draws a run's pictures and writes its index page.

  Reads only files of the run. Everything is made beside its place and then
  moved there, the page last; a report that was there before is replaced. The
  same files give the same bytes.

  Args:
    workdir: The folder of a run that was trained and evaluated.
    clock: Of pictures of time.

  Returns:
    `<workdir>/report/index.html`.

  Raises:
    DataError: If a file is missing or damaged; names it, and the command that
      makes it.
  """
  run = run_lib.read(workdir, clock)
  report = run.workdir / 'report'
  with tempfile.TemporaryDirectory(
    prefix='.report-', dir=run.workdir
  ) as temporary:
    made = pathlib.Path(temporary)
    pictures = [picture for picture in PICTURES if _draw(picture, run, made)]
    (made / _INDEX).write_text(_render(run, pictures), encoding='utf-8')
    report.mkdir(exist_ok=True)
    for picture in pictures:
      os.replace(made / picture.name, report / picture.name)
    os.replace(made / _INDEX, report / _INDEX)
  for picture in PICTURES:
    if picture not in pictures:
      (report / picture.name).unlink(missing_ok=True)
  return report / _INDEX


def _draw(picture: Picture, run: run_lib.Run, folder: pathlib.Path) -> bool:
  """Writes a picture; returns whether there was something to draw."""
  with style.applied():
    figure = picture.module.draw(run)
    if figure is None:
      return False
    (folder / picture.name).write_bytes(style.to_png(figure))
  return True


def _render(run: run_lib.Run, pictures: list[Picture]) -> str:
  return html.render(
    'run/page.html.jinja',
    run=run,
    heading=summary.heading(run),
    measure=style.score_label(run).partition(' (')[0],
    rows=summary.rows(run),
    warnings=warning_texts.sentences(run),
    pictures=pictures,
    places=[
      (name, what) for name, what in _PLACES if (run.workdir / name).exists()
    ],
    settings=html.flatten(run.config),
  )
