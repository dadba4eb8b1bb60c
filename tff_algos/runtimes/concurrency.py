"""Threads that may call the same graph at the same time.

When it saves memory, TensorFlow 2.14 rewrites sums in a graph to add up in a
temporary variable. The variable's name is the same in every call, so two calls
of one graph that run at the same time fail (`AlreadyExistsError ... tmp_var`).
"""

from concurrent import futures

import tensorflow as tf
from tensorflow.python.eager import context


def thread_pool(num_threads: int) -> futures.ThreadPoolExecutor:
  """Returns a pool whose threads may call the same `tf.function`.

  A graph is optimized when it is first called, so the first call must come
  from such a pool, too.

  Args:
    num_threads: >= 1.
  """
  return futures.ThreadPoolExecutor(
    num_threads, initializer=_keep_sums_as_they_are
  )


def _keep_sums_as_they_are() -> None:
  """Turns the rewriting off for the graphs that this thread calls."""
  eager = context.context()
  config = tf.compat.v1.ConfigProto.FromString(
    eager.function_call_options.config_proto_serialized
  )
  rewriting = config.graph_options.rewrite_options
  rewriting.memory_optimization = rewriting.NO_MEM_OPT
  eager.function_call_options = context.FunctionCallOptions(config_proto=config)
