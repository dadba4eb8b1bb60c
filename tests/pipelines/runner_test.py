import apache_beam as beam
import pytest

from pipelines import runner
from tff_algos.core import errors


class _Raise(beam.DoFn):
  def __init__(self, kind):
    self._kind = kind

  def process(self, element):
    raise self._kind(*(['text'] if self._kind is errors.DataError else []))


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
