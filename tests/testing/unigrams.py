"""Sentences without order: a model is one logit for each word.

Word 0 is padding. The loss of a label is -log softmax(logits)[label].
"""

from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import model as model_lib
from tff_algos.data import schema

PLACES = 3


def model(num_words: int = 3) -> model_lib.Model:
  """Returns the model of sentences of up to three words."""

  def apply(weights, x):
    shape = [tf.shape(x)[0], PLACES, num_words]
    return tf.broadcast_to(weights['logits'], shape)

  return model_lib.Model(
    'unigrams',
    model_lib.CLASSIFICATION,
    (PLACES,),
    num_words,
    lambda seed: OrderedDict(
      logits=tf.random.stateless_normal([num_words], seed)
    ),
    apply,
    vectorizes=True,
    input_dtype=tf.int32,
    label_shape=(PLACES,),
    padding_label=0,
  )


def logits(*probs: list[float]) -> np.ndarray:
  """Returns stacked logits of models with these probabilities of the words."""
  return np.log(np.array(probs, np.float32) + np.float32(1e-20))


def clients(sentences_per_client: list[list[list[int]]]) -> toys.ToySource:
  """Returns clients with these labels, `[n, 3]` each."""
  made = []
  for sentences in sentences_per_client:
    y = np.array(sentences, np.int32).reshape(-1, PLACES)
    made.append(schema.Examples(y, y, np.zeros(len(y), np.int32)))
  return toys.ToySource(made)
