import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import types

import apache_beam as beam
import distributed
import grpc
import psutil
import pytest
from apache_beam.testing import test_pipeline, util

from pipelines.engines import failures, runner
from pipelines.sources import base
from tff_algos.core import errors

_ONE_PROCESS = (
  '--direct_num_workers=1',
  '--direct_running_mode=multi_processing',
)


class _Raise(beam.DoFn):
  def __init__(self, kind):
    self._kind = kind

  def process(self, element):
    with failures.carried():
      raise self._kind(*(['text'] if self._kind is errors.DataError else []))


class _KillItself(beam.DoFn):
  def process(self, element):
    os.kill(os.getpid(), signal.SIGKILL)


class _Write(beam.DoFn):
  def __init__(self, folder):
    self._folder = folder

  def process(self, element):
    (self._folder / str(element)).touch()
    return []


@pytest.mark.parametrize('flags', [[], ['--runner=DirectRunner']])
def test_local_runner_runs(tmp_path, flags):
  with runner.run_pipeline(flags) as pipeline:
    _ = pipeline | beam.Create([1, 2]) | beam.ParDo(_Write(tmp_path))
  assert sorted(path.name for path in tmp_path.iterdir()) == ['1', '2']


def test_local_runner_fetches_nothing(caplog):
  """Beam's DirectRunner would try to download Prism, and say so."""
  caplog.set_level('INFO')
  with runner.run_pipeline([]) as pipeline:
    _ = pipeline | beam.Create([1])
  assert 'prism' not in caplog.text.lower()


@pytest.mark.parametrize('kind', [errors.DataError, KeyboardInterrupt])
def test_what_a_step_raises_comes_through(kind):
  with pytest.raises(kind):
    with runner.run_pipeline([]) as pipeline:
      _ = pipeline | beam.Create([1]) | beam.ParDo(_Raise(kind))


def test_a_bug_in_a_step_stays_a_bug():
  with pytest.raises(ZeroDivisionError):
    with runner.run_pipeline([]) as pipeline:
      _ = pipeline | beam.Create([0]) | beam.Map(lambda x: 1 / x)


@pytest.mark.parametrize(
  ('flag', 'text'),
  [
    ('--bogus=1', 'no option bogus'),
    ('--runner=NoSuchRunner', 'Unexpected pipeline runner'),
    ('--runner=no.such.Runner', 'No module named'),
    ('--direct_running_mode=fast', 'refuses a value'),
    ('--direct_num_workers=x', 'refuses a value'),
  ],
)
def test_options_that_beam_does_not_know(flag, text):
  with pytest.raises(errors.ConfigError, match=text):
    with runner.run_pipeline([flag]):
      pass


def test_mistake_in_a_worker_process_comes_through():
  with pytest.raises(errors.DataError, match='^text$'):
    with runner.run_pipeline(_ONE_PROCESS) as pipeline:
      _ = pipeline | beam.Create([1]) | beam.ParDo(_Raise(errors.DataError))


class _SignalAtItsEnd:
  def __init__(self, signum):
    self._signum = signum

  def __del__(self):
    signal.raise_signal(self._signum)


def _exit(*_):
  sys.exit(143)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize(
  ('signum', 'handler', 'kind'),
  [
    (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    (signal.SIGTERM, _exit, SystemExit),
  ],
)
def test_signal_in_a_destructor_is_not_lost(monkeypatch, signum, handler, kind):
  # The binaries' own hook would send the signal again, into the next test.
  monkeypatch.setattr(sys, 'unraisablehook', sys.__unraisablehook__)
  before = signal.signal(signum, handler)
  after = []
  try:
    with pytest.raises(kind):
      with runner.run_pipeline([]) as pipeline:
        _ = pipeline | beam.Create([0])
        _SignalAtItsEnd(signum)
        after.append('reached')
    assert after == ['reached']
    assert signal.getsignal(signum) is handler
  finally:
    signal.signal(signum, before)


@pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)
def test_worker_process_that_is_killed_ends_the_wait():
  before = psutil.Process().children(recursive=True)
  with pytest.raises(
    errors.InfrastructureError, match='worker process of Beam was lost'
  ):
    with runner.run_pipeline(_ONE_PROCESS) as pipeline:
      _ = pipeline | beam.Create([1, 2]) | beam.ParDo(_KillItself())
  assert psutil.Process().children(recursive=True) == before


def _end_a_worker_with(code):
  """Raises in a thread what Beam's raises when its worker process ends."""

  def wait():
    raise RuntimeError(f'Worker subprocess exited with return code {code}')

  thread = threading.Thread(target=wait)
  thread.start()
  thread.join()


@pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)
@pytest.mark.parametrize('code', [137, -9, 139, -11])
def test_a_kill_is_known_from_either_shell(code):
  """dash says 128 + signal; of bash nothing is left but the process itself."""
  with pytest.raises(errors.InfrastructureError, match=f'return code {code};'):
    with runner.run_pipeline([]):
      _end_a_worker_with(code)
      time.sleep(10)  # Ends by the interrupt.


@pytest.mark.filterwarnings(
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)
@pytest.mark.parametrize('code', [1, -15])
def test_a_worker_that_ends_by_itself_is_not_lost(code):
  with runner.run_pipeline([]) as pipeline:
    _ = pipeline | beam.Create([1])
    _end_a_worker_with(code)


@pytest.mark.parametrize(
  'error',
  [
    ConnectionRefusedError(111, 'Connection refused'),
    TimeoutError('Timed out trying to connect'),
    distributed.scheduler.KilledWorker(
      'task', types.SimpleNamespace(address='tcp://10.0.0.5:1'), 3
    ),
    grpc.RpcError('failed to connect to all addresses'),
  ],
)
def test_engine_that_is_lost_is_infrastructure(error):
  with pytest.raises(
    errors.InfrastructureError, match=r"engine of '--runner=\S+' failed"
  ):
    with runner.run_pipeline(['--runner=DirectRunner']):
      raise error


@pytest.mark.parametrize(
  ('flags', 'runner_class'),
  [
    ('--direct_num_workers=2 --direct_running_mode=in_memory', 'FnApiRunner'),
    ('--runner=DaskRunner --dask_client_address=10.0.0.5:8786', 'DaskRunner'),
    (
      '--runner=FlinkRunner --flink_master=10.0.0.5:8081 --parallelism=8 '
      '--environment_type=PROCESS '
      r'--environment_config="{\"command\":\"/opt/beam/boot\"}"',
      'FlinkRunner',
    ),
    (
      '--runner=SparkRunner --spark_master_url=spark://10.0.0.5:7077 '
      '--environment_type=DOCKER --environment_config=tff_algos:1',
      'SparkRunner',
    ),
    (
      '--runner=PortableRunner --job_endpoint=10.0.0.5:8099 '
      '--environment_type=EXTERNAL --environment_config=10.0.0.5:50000',
      'PortableRunner',
    ),
    (
      '--runner=DataflowRunner --project=my-project --region=europe-west1 '
      '--temp_location=gs://bucket/tmp --max_num_workers=20 '
      '--sdk_container_image=tff_algos:1',
      'DataflowRunner',
    ),
  ],
)
def test_flags_of_engines_are_understood(flags, runner_class):
  """As far as that goes without the engine: which runner gets which options."""
  pipeline = runner._create_pipeline(shlex.split(flags))
  assert type(pipeline.runner).__name__ == runner_class
  options = pipeline._options.get_all_options()
  for flag in shlex.split(flags):
    name, _, value = flag.removeprefix('--').partition('=')
    name = {'dask_client_address': 'address'}.get(name, name)
    if name != 'runner':
      assert str(options[name]) == value


@pytest.mark.parametrize(
  ('flags', 'text'),
  [
    ('--runner=DataflowRunner --region=europe-west1', 'project'),
    ('--runner=FlinkRunner --flink_mastr=10.0.0.5:8081', 'flink_mastr'),
    ('--template_location=gs://bucket/template', 'a template holds one job'),
  ],
)
def test_flags_that_an_engine_refuses(flags, text):
  with pytest.raises(errors.ConfigError, match=text):
    with runner.run_pipeline(shlex.split(flags)):
      pass


@pytest.mark.parametrize(
  ('flags', 'npartitions'),
  [
    ([], 32),
    (['--dask_npartitions=5'], 5),
    (['--dask_npartitions', '5'], 5),
    (['--dask_partition_size=5'], None),
    (['--temp_location=s3://bucket/partitions'], 32),
  ],
)
def test_dask_gets_partitions_enough_for_its_workers(flags, npartitions):
  pipeline = runner._create_pipeline(['--runner=DaskRunner', *flags])
  assert pipeline._options.get_all_options()['npartitions'] == npartitions


@pytest.mark.filterwarnings(
  # Beam closes channels that gRPC still watches.
  'ignore::pytest.PytestUnhandledThreadExceptionWarning'
)
@pytest.mark.parametrize(
  'flags',
  [
    # A job server that nobody started.
    '--runner=PortableRunner --job_endpoint=127.0.0.1:1 --job_server_timeout=1 '
    '--environment_type=EXTERNAL --environment_config=127.0.0.1:1',
    # One that ends at once.
    '--runner=FlinkRunner --flink_master=127.0.0.1:1 '
    '--environment_type=EXTERNAL --environment_config=127.0.0.1:1 '
    f'--flink_job_server_jar={__file__} --job_server_java_launcher=/bin/false',
    '--runner=DaskRunner --dask_client_address=127.0.0.1:1 '
    '--dask_connection_timeout=1',
  ],
  ids=['portable', 'flink', 'dask'],
)
def test_engine_that_cannot_be_reached_is_infrastructure(
  flags, tmp_path, monkeypatch
):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  with pytest.raises(errors.InfrastructureError, match='engine of .* failed'):
    with runner.run_pipeline(shlex.split(flags)) as pipeline:
      _ = pipeline | beam.Create([1])


@pytest.mark.parametrize(
  ('error', 'is_of_engine'),
  [
    (RuntimeError('job failed in state FAILED: Connection refused'), True),
    (
      RuntimeError('Traceback (most recent call last): ... KeyError: 3'),
      False,
    ),
  ],
)
def test_a_bug_in_the_words_of_an_engine_stays_one(error, is_of_engine):
  flags = ['--runner=PortableRunner']
  found = runner._find_reason(error, flags, [])
  assert isinstance(found, errors.InfrastructureError) == is_of_engine


@pytest.mark.parametrize('kind', [KeyboardInterrupt, errors.DataError])
def test_other_errors_on_another_engine_stay_what_they_are(kind):
  error = kind('text')
  assert runner._find_reason(error, ['--runner=PortableRunner'], []) is error


def test_a_bug_of_ours_on_another_engine_stays_one():
  try:
    base.array_sha256(None)
  except AttributeError as error:
    bug = error
  assert runner._find_reason(bug, ['--runner=DaskRunner'], []) is bug


@pytest.mark.parametrize('text', ['--runner="Flink', "--name='a"])
def test_quotation_that_is_not_closed(text):
  with pytest.raises(errors.ConfigError, match='No closing quotation'):
    runner.split_flags(text)


def test_environment_without_its_quotation_marks():
  """What a shell leaves of JSON that is quoted once."""
  flags = runner.split_flags(
    '--runner=FlinkRunner --environment_type=PROCESS '
    '--environment_config={"command":"/opt/beam/boot"}'
  )
  with pytest.raises(errors.ConfigError, match='is no JSON object'):
    runner.check_flags(flags)


def test_dataflow_needs_a_place_to_hand_over():
  flags = ['--runner=DataflowRunner', '--project=my-project', '--region=here']
  with pytest.raises(errors.ConfigError, match='--temp_location=gs://bucket'):
    runner.check_flags([*flags, '--staging_location=gs://bucket/staging'])
  with pytest.raises(errors.ConfigError, match="'s3://' is no address"):
    runner.check_flags(['--temp_location=s3://'])


@pytest.mark.parametrize(
  ('flags', 'address'),
  [
    ([], None),
    (['--temp_location=/tmp'], None),
    (['--temp_location=hdfs://host/tmp'], None),
    (['--temp_location=gs://bucket/tmp'], 'gs://bucket/tmp'),
    (
      ['--runner=DaskRunner', '--temp_location=s3://bucket/tmp'],
      's3://bucket/tmp',
    ),
  ],
)
def test_workers_hand_over_where_temporary_files_go(flags, address):
  assert runner.find_handover(flags) == address


def test_every_element_is_handed_out_once():
  with test_pipeline.TestPipeline() as pipeline:
    util.assert_that(
      pipeline | runner.spread(range(4)), util.equal_to([0, 1, 2, 3])
    )


def test_no_element():
  with test_pipeline.TestPipeline() as pipeline:
    counted = pipeline | runner.spread([]) | beam.combiners.Count.Globally()
    util.assert_that(counted, util.equal_to([0]))
