"""Batch inference as a program, beside a served model."""

import pytest
from pyarrow import parquet

from binaries import predict
from tests.testing import scoring
from tff_algos.data import dataset as dataset_lib
from tff_algos.serving import clients, models, server, server_config


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  return scoring.write_workdir(tmp_path_factory.mktemp('run'))


@pytest.fixture(name='scored', scope='module')
def make_scored(workdir, launcher):
  program = launcher.run('binaries.score', f'--workdir={workdir}')
  assert program.returncode == 0, program.stderr
  return program


def test_predictions_are_those_of_the_server(workdir, scored):
  (folder,) = workdir.glob('predictions/versions/*')
  rows = parquet.read_table(folder).to_pylist()
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with (
    server.running(models.ModelStore(workdir / 'export'), config) as ports,
    dataset_lib.FederatedDataset.open(workdir / 'dataset') as dataset,
  ):
    asked = clients.Server(f'http://127.0.0.1:{ports.rest_api_port}', 60)
    for client_id in scoring.CLIENT_IDS:
      mine = [row for row in rows if row['client_id'] == client_id]
      who = {'cluster_id': mine[0]['cluster_id']}
      if mine[0]['model'] == 'personalized':
        who = {'client_id': client_id}
      examples = dataset.examples(client_id, 'test')
      answer = predict.predict(
        asked,
        f'/v1/models/{mine[0]["model"]}_models:predict',
        {'instances': [{'x': x.tolist(), **who} for x in examples.x]},
      )['predictions']
      assert [row['prediction'] for row in mine] == [
        row['class_id'] for row in answer
      ]
      assert [row['probability'] for row in mine] == pytest.approx(
        [max(row['probabilities']) for row in answer], rel=1e-6
      )


def test_the_program_says_what_it_did_and_leaves_nothing(workdir, scored):
  assert 'of 5 clients' in scored.stderr
  assert '3 by client_id, 2 by lowest_loss' in scored.stderr
  assert not scored.temporary_files() and not scored.processes()
  words = [line for line in scored.complaints if not line.startswith('  ')]
  assert not words
  assert {path.name for path in (workdir / 'predictions').iterdir()} == {
    *('CURRENT', 'versions')
  }


def test_assignments(workdir, launcher, tmp_path):
  table = tmp_path / 'clients.csv'
  table.write_text('client_id,cluster_id\neve,1\n')
  program = launcher.run(
    'binaries.score',
    f'--dataset={workdir / "dataset"}',
    f'--model_base_path={workdir / "export"}',
    f'--output_dir={tmp_path / "out"}',
    f'--assignments={table}',
    '--otherwise=cluster_0',
  )
  assert program.returncode == 0, program.stderr
  assert '1 by assignment, 3 by client_id, 1 by default' in program.stderr


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--otherwise=best'], 'otherwise must be'),
    (['--otherwise=refuse'], "client 'eve' has no personalized model"),
    (['--assignments=/missing.csv'], 'cannot be read'),
    (['--model_base_path=/missing'], 'no personalized models at'),
    (['--dataset=/missing'], 'no federated dataset'),
  ],
)
def test_mistake_is_one_line_and_nothing_is_left(
  workdir, launcher, tmp_path, arguments, words
):
  program = launcher.run(
    'binaries.score',
    f'--workdir={workdir}',
    f'--output_dir={tmp_path / "out"}',
    *arguments,
  )
  assert program.returncode == 1, program.stderr
  (line,) = program.complaints
  assert words in line
  assert not (tmp_path / 'out').exists()


def test_no_folder_given(launcher):
  program = launcher.run('binaries.score')
  assert program.returncode == 1
  assert 'give --workdir or --dataset' in program.complaints[0]
