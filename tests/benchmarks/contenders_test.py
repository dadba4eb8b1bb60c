import pytest

from benchmarks import cases, preparation
from benchmarks import workload as workload_lib
from benchmarks.contenders import dataset, passes, tf_data


@pytest.mark.parametrize(
  'build', [dataset.DatasetContender, tf_data.TfDataContender]
)
def test_clients_are_read_before_the_first_pass(build, tmp_path):
  workload = cases.CASES['tiny_batching'].entries[0].workload
  preparation.prepare(workload, tmp_path, 1)
  inputs = workload_lib.Inputs(tmp_path)
  with passes.open_contender(inputs, build) as contender:
    contender.prepare(1)
    contender.source._dataset = None
    contender.run_round(1)
    counts = contender.weights()
  assert counts['num_batches'] == workload.num_clients * workload.num_batches
