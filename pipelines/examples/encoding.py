"""Encoding of raw columns by a fitted feature spec."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipelines.examples import raw_columns
from tff_algos.core import checks
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib

if TYPE_CHECKING:
  from tff_algos.features import preprocessing


class Fitted(NamedTuple):
  """A fitted feature spec.

  Attributes:
    spec: The spec.
    client_mean: Of the columns `spec.by_client` at each client, float32
      `[num_clients, columns]`; the fitted mean where a client has no value.
    client_deviation: Standard deviations; the fitted one where a client has
      but one value.
  """

  spec: spec_lib.FeatureSpec
  client_mean: Array
  client_deviation: Array

  def stored_as(self, schema: schema_lib.Schema) -> schema_lib.Schema:
    """Returns a schema with the shape and dtype of encoded examples."""
    output = checks.check_given('encoded form', self.spec.output())
    return dataclasses.replace(
      schema,
      x_dtype=output.dtype,
      x_shape=output.shape,
      x_scale=output.scale,
      x_offset=output.offset,
    )


def statistics_of_all(spec: spec_lib.FeatureSpec) -> tuple[Array, Array]:
  """Returns mean and deviation over all clients of the columns `by_client`."""
  of_all = [spec.fitted[name] for name in spec.by_client]
  mean = np.array([one['mean'] for one in of_all], np.float32)
  variance = np.array([one['variance'] for one in of_all], np.float64)
  return mean, np.sqrt(variance).astype(np.float32)


class Encoder:
  """Encoder of raw columns; imports TensorFlow when it is first used."""

  def __init__(self, fitted: Fitted) -> None:
    self._spec = fitted.spec
    # The last row is for examples of no client.
    mean, deviation = statistics_of_all(fitted.spec)
    self._mean = np.vstack([fitted.client_mean, mean])
    self._deviation = np.vstack([fitted.client_deviation, deviation])

  def encode(self, columns: raw_columns.Columns, clients: Array) -> Array:
    """Returns examples as they are stored, `[n, *x_shape]`.

    Args:
      columns: Raw values of n examples.
      clients: Client of each, negative for none, `[n]`.
    """
    import tensorflow as tf  # noqa: PLC0415

    inputs: dict[str, Any] = {
      **columns,
      spec_lib.CLIENT_MEAN: self._mean[clients],
      spec_lib.CLIENT_DEVIATION: self._deviation[clients],
    }
    tensors = {
      name: tf.constant(inputs[name], spec.dtype)
      for name, spec in self._preprocessing.column_specs().items()
    }
    return self._graph(tensors).numpy()

  @functools.cached_property
  def _preprocessing(self) -> 'preprocessing.Preprocessing':
    from tff_algos.features import preprocessing  # noqa: PLC0415

    return preprocessing.Preprocessing(self._spec)

  @functools.cached_property
  def _graph(self) -> Any:
    import tensorflow as tf  # noqa: PLC0415

    return tf.function(
      self._preprocessing.encode,
      input_signature=[self._preprocessing.column_specs()],
      autograph=False,
    )
