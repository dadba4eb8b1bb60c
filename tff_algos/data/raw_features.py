"""Feature spec of a dataset: its raw columns and their encoding."""

from collections.abc import Mapping, Sequence
from typing import Any

from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib

# Manifest entry of a fitted spec.
FEATURES = 'features'
# Columns of the client table: statistics of the features `by_client`.
CLIENT_MEAN = 'feature_mean'
CLIENT_DEVIATION = 'feature_deviation'


def of_manifest(manifest: Mapping[str, Any]) -> spec_lib.FeatureSpec:
  """Returns the feature spec of a dataset.

  A dataset of raw columns has it in its manifest. A table of plain numbers has
  its columns. One of arrays has one column, by what its schema and the facts of
  its source say: `image` (8-bit images), `tokens` (words by a vocabulary), or
  `x` (other arrays, as stored).

  Raises:
    DataError: If the manifest is damaged, or written by other code.
  """
  if FEATURES in manifest:
    return spec_lib.FeatureSpec.from_dict(manifest[FEATURES])
  schema = schema_lib.Schema.from_dict(manifest['schema'])
  options = manifest['recipe']['source']['options']
  facts = manifest['source_facts']
  classes = facts.get('class_names') or options.get('classes') or ()
  words = facts.get('vocabulary') or options.get('alphabet') or ()
  described: dict[str, Any] = {
    'classes': tuple(map(str, classes)),
    'label': options.get('label_column', ''),
    'scale': schema.x_scale,
    'offset': schema.x_offset,
  }
  if schema.has_tokens and words:
    return _tokens(schema, words, facts.get('special_ids', {}), described)
  if options.get('feature_columns'):
    columns = tuple(
      spec_lib.Feature(name, encoding=spec_lib.PLAIN)
      for name in options['feature_columns']
    )
    return spec_lib.FeatureSpec(columns, **described)
  shape = schema.x_shape
  if schema.x_dtype == 'uint8' and schema.is_image:
    feature = spec_lib.Feature('image', spec_lib.IMAGE, shape=shape)
  else:
    feature = spec_lib.Feature('x', spec_lib.TENSOR, shape=shape)
  return spec_lib.FeatureSpec((feature,), dtype=schema.x_dtype, **described)


def _tokens(
  schema: schema_lib.Schema,
  words: Sequence[str],
  special_ids: Mapping[str, int],
  described: Mapping[str, Any],
) -> spec_lib.FeatureSpec:
  (length,) = schema.x_shape
  return spec_lib.FeatureSpec(
    (spec_lib.Feature('tokens', spec_lib.TOKENS, length=length),),
    fitted={'tokens': {'vocabulary': list(words)}},
    special_ids=dict(special_ids),
    dtype=schema.x_dtype,
    **described,
  )
