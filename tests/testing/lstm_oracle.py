"""LSTM layers in NumPy, example by example and gate by gate, in float64."""

import numpy as np


def _sigmoid(value):
  return 1 / (1 + np.exp(-value))


def outputs(inputs, kernel, bias):
  """Returns the output of a layer at every step for one example.

  Args:
    inputs: `[steps, inputs]`.
    kernel: `[inputs + units, 4 * units]`: input gate, content, forget gate, output gate.
    bias: `[4 * units]`.
  """
  kernel, bias = (np.asarray(part, np.float64) for part in (kernel, bias))
  units = len(bias) // 4
  gates = [slice(g * units, (g + 1) * units) for g in range(4)]
  output, cell, all_outputs = np.zeros(units), np.zeros(units), []
  for step in np.asarray(inputs, np.float64):
    seen = np.concatenate([step, output])
    enter, content, keep, leave = (
      seen @ kernel[:, gate] + bias[gate] for gate in gates
    )
    cell = _sigmoid(keep) * cell + _sigmoid(enter) * np.tanh(content)
    output = _sigmoid(leave) * np.tanh(cell)
    all_outputs.append(output)
  return np.stack(all_outputs)


def logits(weights, vectors):
  """Returns what two layers and the dense ones after them say of one example.

  Args:
    weights: `lstm_0`, `lstm_1` and `dense_0`, `dense_1` and so on, each with a
      `kernel` and a `bias`.
    vectors: `[steps, inputs]`.
  """
  hidden = vectors
  for i in range(2):
    hidden = outputs(
      hidden, weights[f'lstm_{i}/kernel'], weights[f'lstm_{i}/bias']
    )
  hidden, i = hidden[-1], 0
  while f'dense_{i}/kernel' in weights:
    kernel, bias = (weights[f'dense_{i}/{part}'] for part in ('kernel', 'bias'))
    hidden, i = np.matmul(hidden, kernel, dtype=np.float64) + bias, i + 1
  return hidden
