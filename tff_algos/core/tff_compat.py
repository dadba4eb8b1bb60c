"""Compatibility layer over TFF, and the only module that imports it.

Written for TFF 0.87. Later versions move these names into the package
`federated_language`, which changes this file alone.
"""

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import grpc

from tff_algos.core.structures import Structure

with warnings.catch_warnings():
  # google.rpc, which TFF pulls in, still imports pkg_resources.
  warnings.simplefilter('ignore')
  import tensorflow_federated as tff
  from tensorflow_federated.python.core.environments.tensorflow_frontend import (  # noqa: E501
    tensorflow_computation as _tensorflow_environment,
  )
  from tensorflow_federated.python.core.impl.executor_stacks import (
    python_executor_stacks as _executor_stacks,
  )

# TFF has no type annotations.
Type: TypeAlias = Any
Computation: TypeAlias = Any
Value: TypeAlias = Any
Context: TypeAlias = Any

federated_aggregate = tff.federated_aggregate
federated_broadcast = tff.federated_broadcast
federated_computation = tff.federated_computation
federated_eval_at_server = functools.partial(
  tff.federated_eval, placement=tff.SERVER
)
federated_map = tff.federated_map
federated_sum = tff.federated_sum
federated_zip = tff.federated_zip
tensorflow_computation: Any = tff.tensorflow.computation
LearningProcess: Any = tff.learning.templates.LearningProcess
LearningProcessOutput: Any = tff.learning.templates.LearningProcessOutput
ModelWeights: Any = tff.learning.models.ModelWeights
UnweightedFactory: Any = tff.aggregators.UnweightedAggregationFactory
WeightedFactory: Any = tff.aggregators.WeightedAggregationFactory

_MESSAGE_LIMIT_BYTES = 2_000_000_000
# A machine that falls silent closes no connection. Servers of gRPC refuse
# clients that ping more often than every 300 seconds.
_PING_SECONDS = 330.0
_PING_ANSWER_SECONDS = 60.0


def to_type(spec: Structure) -> Type:
  """Returns the TFF type of a structure of `tf.TensorSpec`s."""
  return tff.types.tensorflow_to_type(spec)


def to_specs(type_: Type) -> Structure:
  """Returns a TFF tensor structure type as a structure of `tf.TensorSpec`s."""
  return tff.types.type_to_tf_tensor_specs(type_)


def tuple_type(types: Sequence[Type]) -> Type:
  """Returns the type of a tuple."""
  return tff.StructWithPythonType(list(types), tuple)


def sequence_type(element: Type) -> Type:
  """Returns the type of a `tf.data.Dataset` of elements of a type."""
  return tff.SequenceType(element)


def has_field(type_: Type, name: str) -> bool:
  """Returns whether the type of a TFF struct has a field of a name."""
  return tff.structure.has_field(type_, name)


def innermost_factory(factory: Any) -> Any:
  """Returns the factory inside of wrappers such as `clipping_factory`.

  TFF has no public access to it. A factory that is no wrapper of TFF's is
  returned itself.
  """
  closure = inspect.getclosurevars(type(factory).create).nonlocals
  for name in ('inner_agg_factory', '_inner_agg_factory', '_factory'):
    inner = closure.get(name, getattr(factory, name, None))
    if isinstance(inner, (UnweightedFactory, WeightedFactory)):
      return innermost_factory(inner)
  return factory


def averages(factory: Any) -> bool:
  """Returns whether an unweighted factory, or the one it wraps, averages."""
  factory = innermost_factory(factory)
  if isinstance(factory, tff.aggregators.DifferentiallyPrivateFactory):
    # With most other queries it is a noisy sum.
    query = vars(factory)['_query']
    names = {one.__name__ for one in type(query).__mro__}
    return bool(names & {'NormalizedQuery', 'NoPrivacyAverageQuery'})
  return isinstance(factory, tff.aggregators.UnweightedMeanFactory)


def divides_twice(factory: Any) -> bool:
  """Returns whether a mean is made of a factory that averages already."""
  inner = getattr(innermost_factory(factory), '_value_sum_factory', None)
  return inner is not None and averages(inner)


def at_server(member: Type) -> Type:
  """Returns the type of a value at the server."""
  return tff.FederatedType(member, tff.SERVER)


def at_clients(member: Type) -> Type:
  """Returns the type of a value at each client."""
  return tff.FederatedType(member, tff.CLIENTS)


def connect(address: str) -> grpc.Channel:
  """Returns a channel to a TFF worker, wide enough for model weights.

  A call fails some minutes after the worker's machine falls silent.
  """
  return grpc.insecure_channel(
    address,
    options=[
      ('grpc.max_receive_message_length', _MESSAGE_LIMIT_BYTES),
      ('grpc.max_send_message_length', _MESSAGE_LIMIT_BYTES),
      # Loopback must not go through a proxy that the environment names.
      ('grpc.enable_http_proxy', 0),
      ('grpc.keepalive_time_ms', int(1000 * _PING_SECONDS)),
      ('grpc.http2.ping_timeout_ms', int(1000 * _PING_ANSWER_SECONDS)),
      # As many as a long call needs.
      ('grpc.http2.max_pings_without_data', 0),
    ],
  )


def remote_context(
  channel: grpc.Channel, check_alive: Callable[[], None]
) -> Context:
  """Returns a synchronous TFF context that runs on the worker behind a channel.

  Secure sums are simulated: the worker adds the quantized values in the clear.

  Args:
    channel: Connected to a TFF `worker_binary` that is ready.
    check_alive: Raises if the worker is gone. TFF retries a failed call without
      end and requests an executor each time; this check ends the retries.
  """
  stub = tff.framework.RemoteExecutorGrpcStub(channel)

  def build_executor(cardinalities: Any) -> Any:
    check_alive()
    cardinalities.setdefault(tff.CLIENTS, 0)
    executor = tff.framework.RemoteExecutor(stub)
    executor.set_cardinalities(cardinalities)
    return executor

  return tff.framework.SyncExecutionContext(
    executor_fn=_executor_stacks.ResourceManagingExecutorFactory(
      build_executor
    ),
    compiler_fn=_compile,
    transform_args=_tensorflow_environment.transform_args,
    transform_result=_tensorflow_environment.transform_result,
  )


def _compile(computation: Computation) -> Any:
  """Compiles for a stock worker, which has no secure sums of its own."""
  return tff.backends.native.desugar_and_transform_to_native(
    tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
  )


def in_context(context: Context) -> contextlib.AbstractContextManager[Any]:
  """Returns a context manager under which computations run in `context`."""
  return tff.framework.get_context_stack().install(context)


def refuse_default_context() -> None:
  """Replaces this thread's default TFF context by one that refuses to compute.

  For programs: TFF's own context would start a worker process of its own at
  the first computation outside `in_context`, and writes an ignored exception to
  stderr when the interpreter exits. The library does not call this, so that TFF
  code of a user runs as before.
  """

  def refuse(cardinalities: Any) -> NoReturn:
    del cardinalities
    raise RuntimeError(
      'a TFF computation was called outside a runtime; run it in '
      'tff_algos.runtimes.tff.tff_runtime.TffRuntime'
    )

  tff.framework.set_default_context(
    tff.framework.SyncExecutionContext(
      executor_fn=_executor_stacks.ResourceManagingExecutorFactory(refuse)
    )
  )
