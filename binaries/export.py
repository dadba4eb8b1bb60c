r"""Releases the models that the gate blessed, as SavedModels.

  python -m binaries.gate --config=configs/fed_soft/digits.py \
    --workdir=runs/digits
  python -m binaries.export --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

publishes the gated candidate as the next version of export/cluster_models and
export/personalized_models, in the layout of TensorFlow Serving. What was
released before is not released again. --export_dir names an export path that
many runs share. --nogate exports the latest checkpoint (or that of --round)
without a gate; --client_id does so with the model of one client only.
--tflite_dir=DIR writes TFLite files of every cluster and client instead, which
predict and train on a device.
"""

from absl import flags, logging

from binaries import command


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  round_text = flags.DEFINE_string(
    'round',
    '',
    'Checkpoint to export: last, best (by config.training.selection), or the '
    'number of a round. Default: the gated one; without a gate the last.',
  )
  client_id = flags.DEFINE_string(
    'client_id', None, 'Export the model of this client only, without a gate.'
  )
  export_dir = flags.DEFINE_string(
    'export_dir', None, 'Export path; default: <workdir>/export.'
  )
  tflite_dir = flags.DEFINE_string(
    'tflite_dir',
    None,
    'Write TFLite files of all cluster models and clients as the next version '
    'under this folder instead, without a gate.',
  )
  is_gated = flags.DEFINE_boolean(
    'gate', True, 'Whether to demand the blessing of binaries.gate.'
  )
  keep_versions = flags.DEFINE_integer(
    'keep_versions',
    None,
    'Number of versions to keep, at least 2: the current one and the one '
    'before always stay. Default: all.',
    lower_bound=2,
  )

  def main() -> None:
    from tff_algos.core import errors
    from tff_algos.experiments import experiment, exporting
    from tff_algos.experiments.production import releasing
    from tff_algos.training import checkpoint

    parsed = experiment.parse(config.value)
    choice = None
    if round_text.value:
      choice = checkpoint.parse_choice(round_text.value)
    ungated_choice = checkpoint.LAST if choice is None else choice
    if tflite_dir.value is not None:
      if client_id.value or export_dir.value or keep_versions.value is not None:
        raise errors.ConfigError(
          '--tflite_dir takes none of --client_id, --export_dir and '
          '--keep_versions: each of its files is a model of its own'
        )
      path = exporting.export_tflite(
        parsed, workdir.value, tflite_dir.value, ungated_choice
      )
      logging.info('Exported %s', path)
      return
    if client_id.value and keep_versions.value is not None:
      raise errors.ConfigError(
        '--client_id takes no --keep_versions: it exports apart from releases'
      )
    if is_gated.value and client_id.value is None:
      release = releasing.release(
        parsed,
        workdir.value,
        export_dir.value,
        choice,
        keep_versions.value,
      )
      logging.info('Released version %d: %s', release.version, release.bundles)
      return
    for path in exporting.export(
      parsed,
      workdir.value,
      ungated_choice,
      client_id.value,
      export_dir.value,
      keep_versions.value,
    ):
      logging.info('Exported %s', path)

  command.run(main)


if __name__ == '__main__':
  _main()
