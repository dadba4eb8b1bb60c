"""The picture of scores over clients."""

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.evaluation import summaries
from tff_algos.reports.plotting import style
from tff_algos.reports.run.plots import clients_plot


@pytest.mark.parametrize('score', ['accuracy', 'mse'])
def test_worst_client_stands_first_and_the_worst_decile_is_named(
  tmp_path, score
):
  run = fake_workdir.read(tmp_path, score=score)
  dots, shares = clients_plot.draw(run).axes
  personalized = dots.collections[-1].get_offsets()[:, 1]
  worst = min if run.higher_is_better else max
  assert personalized[0] == worst(personalized)
  # Not the unseen clients, whose scores are worse.
  assert len(personalized) == 24
  decile = summaries.summarize(
    personalized, [1] * 24, higher_is_better=run.higher_is_better
  ).worst_decile
  texts = ' '.join(text.get_text() for text in shares.get_legend().get_texts())
  assert f'personalized: worst decile {style.score_text(run, decile)}' in texts


def test_a_diverged_cluster_model_hides_no_personalized_score(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2, score='mse')
  clusters = list(run.clients.columns['test_cluster_mse'])
  clusters[:3] = ['nan', 'nan', 'inf']
  run.clients.columns['test_cluster_mse'] = clusters
  dots, shares = clients_plot.draw(run).axes
  assert len(dots.collections[-1].get_offsets()) == 21
  _, personalized, _, cluster = shares.lines
  assert len(personalized.get_xdata()) == 1 + 24
  # An infinite error counts: the drawn curve ends below 1.
  x, y = cluster.get_data()
  assert y[np.isfinite(x)][-1] == pytest.approx(21 / 22)
  run.clients.columns['test_cluster_mse'] = ['nan'] * len(clusters)
  (shares,) = clients_plot.draw(run).axes
  assert len(shares.lines) == 2


def test_many_clients_are_drawn_as_shares_only(tmp_path):
  run = fake_workdir.read(tmp_path, num_clients=100, num_rounds=2)
  assert len(clients_plot.draw(run).axes) == 1


def test_clients_are_named_on_the_axis(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  dots, _ = clients_plot.draw(run).axes
  names = [label.get_text() for label in dots.get_xticklabels()]
  scores = dict(
    zip(
      run.clients.texts('client_id'),
      run.clients.numbers('test_personalized_accuracy'),
      strict=True,
    )
  )
  drawn = dots.collections[-1].get_offsets()[:, 1]
  assert [scores[name] for name in names] == pytest.approx(drawn.tolist())


def test_of_many_clients_the_worst_are_named(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2, num_clients=50)
  dots, _ = clients_plot.draw(run).axes
  assert len(dots.get_xticklabels()) == 5
