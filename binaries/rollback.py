"""Makes an older version of the exported models current again.

  python -m binaries.rollback --export_dir=runs/production/export

publishes the files of the version that was released before the current one (or
of --version) once more, under the next version number, which TensorFlow Serving
and binaries.serve follow. releases.jsonl records it. Labels stay as they are: a
warning names those that keep requests from the version that is current then.
"""

from absl import flags, logging

from binaries import command


def _main() -> None:
  export_dir = flags.DEFINE_string(
    'export_dir', None, 'Export path.', required=True
  )
  version = flags.DEFINE_integer(
    'version', None, 'Version; default: the one released before the current.'
  )

  def main() -> None:
    from tff_algos.core import errors
    from tff_algos.export import releases

    with releases.opened(export_dir.value, must_exist=True) as path:
      release = path.rollback(version.value)
      logging.info(
        'Version %d is current, with the models of version %d.',
        release.version,
        release.origin,
      )
      try:
        elsewhere = path.labels_elsewhere()
      except errors.ExportError as error:  # It is rolled back nevertheless.
        logging.warning('%s', error)
        return
    if elsewhere:
      logging.warning(
        'Labels still send requests to other models: %s. Change them with '
        'binaries.label.',
        ', '.join(
          f'{label} of {model} is version {version}'
          for model, labels in elsewhere.items()
          for label, version in labels.items()
        ),
      )

  command.run(main)


if __name__ == '__main__':
  _main()
