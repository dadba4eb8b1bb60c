"""Export of the trained models of an experiment as SavedModel bundles."""

import os
import pathlib
import urllib.parse

import numpy as np
import tensorflow as tf

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.experiments import experiment, session
from tff_algos.export import cluster_models, manifest, personalized_models

_NUM_SAMPLES = 8


def export(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  round_num: int | None = None,
  client_id: str | None = None,
) -> list[pathlib.Path]:
  """Exports one checkpoint; returns the folders of the bundles.

  Raises:
    UserError: If there is no such checkpoint or client, or a bundle cannot be
      written or does not read back.
  """
  with session.open_session(config, folder) as opened:
    chosen, server_state = opened.restore(
      'last' if round_num is None else round_num
    )
    provenance = manifest.Provenance(
      config_lib.config_hash(config), chosen, opened.dataset.version
    )
    ids = opened.source.population.client_ids
    samples = choose_samples(opened.dataset)
    output = pathlib.Path(folder, 'export')
    if client_id is not None:
      return [
        _export_client(
          opened, output, server_state, client_id, samples, provenance
        )
      ]
    states = opened.store.load(np.arange(len(ids)))
    return [
      cluster_models.export_cluster_models(
        output / 'cluster_models',
        opened.algorithm,
        server_state,
        samples,
        provenance,
      ),
      personalized_models.export_personalized_models(
        output / 'personalized_models',
        opened.algorithm,
        server_state,
        ids,
        states,
        samples,
        provenance,
      ),
    ]


def choose_samples(dataset: dataset_lib.FederatedDataset) -> np.ndarray:
  """Returns features of a few examples to test a bundle with.

  Held-out examples, or training examples of a client if none are held out.
  """
  held_out = dataset.held_out(0)
  if held_out.num_examples:
    return held_out.x[:_NUM_SAMPLES]
  largest = int(np.argmax(dataset.num_examples(schema.TRAIN)))
  client_id = dataset.client_ids[largest]
  return dataset.examples(client_id, schema.TRAIN).x[:_NUM_SAMPLES]


def _export_client(
  opened, output, server_state, client_id, samples, provenance
):
  ids = opened.source.population.client_ids
  if client_id not in ids:
    raise errors.ExportError(
      f'unknown client id {client_id!r}; the data set has {len(ids)} '
      f'{schema.PARTICIPATING} clients, such as {ids[0]!r}'
    )
  index = ids.index(client_id)
  return personalized_models.export_client_model(
    output / f'client_{urllib.parse.quote(client_id, safe="")}',
    opened.algorithm,
    server_state,
    client_id=client_id,
    client_index=index,
    client_state=tf.nest.map_structure(
      lambda leaf: leaf[0], opened.store.load([index])
    ),
    sample_inputs=samples,
    provenance=provenance,
  )
