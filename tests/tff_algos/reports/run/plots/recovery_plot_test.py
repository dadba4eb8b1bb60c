"""The picture of cluster recovery over rounds."""

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import recovery_plot


def test_agreement_and_error(tmp_path):
  fake_workdir.write(tmp_path)
  agreement, error = recovery_plot.draw(run_lib.read(tmp_path)).axes
  assert {text.get_text() for text in agreement.texts} == {
    'ARI: 1.00',
    'NMI: 1.00',
    'purity: 1.00',
  }
  assert len(error.lines) == 1


def test_error_alone(tmp_path):
  fake_workdir.write(tmp_path)
  path = tmp_path / 'metrics.csv'
  text = path.read_text()
  for key in ('ari', 'nmi', 'purity'):
    text = text.replace(f'membership/{key}', f'gone/{key}')
  path.write_text(text)
  assert len(recovery_plot.draw(run_lib.read(tmp_path)).axes) == 1
