import apache_beam as beam
from apache_beam.testing import test_pipeline, util

from pipelines.engines import spread


def test_every_element_is_handed_out_once():
  with test_pipeline.TestPipeline() as pipeline:
    util.assert_that(
      pipeline | spread.spread(range(4)), util.equal_to([0, 1, 2, 3])
    )


def test_no_element():
  with test_pipeline.TestPipeline() as pipeline:
    counted = pipeline | spread.spread([]) | beam.combiners.Count.Globally()
    util.assert_that(counted, util.equal_to([0]))
