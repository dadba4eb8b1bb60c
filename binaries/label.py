r"""Labels versions of exported models, and gives a canary its share of clients.

  python -m binaries.label --export_dir=runs/production/export \
    --labels=stable=3,canary=4 --canary_share=0.1

replaces the labels of both models. Servers take them over within seconds, once
the labelled versions are loaded. Without --canary_share requests that name no
version are answered by the newest one; with --labels= no version has a label.
"""

from absl import flags, logging

from binaries import command
from tff_algos.core import errors


def _main() -> None:
  export_dir = flags.DEFINE_string(
    'export_dir',
    None,
    'Folder of the models, <model>/<version>/.',
    required=True,
  )
  entries = flags.DEFINE_list(
    'labels',
    None,
    'Labels as label=version, such as stable=3.',
    required=True,
  )
  canary_share = flags.DEFINE_float(
    'canary_share',
    None,
    'Share of the clients, from 0 to 1, that the version labelled canary '
    'answers; stable answers the others.',
  )
  models = flags.DEFINE_list(
    'models', ['cluster_models', 'personalized_models'], 'Models to label.'
  )

  def main() -> None:
    from tff_algos.export import labels

    versions = _parse(entries.value)
    if not all(models.value or ['']):
      raise errors.UserError(
        f'--models is {",".join(models.value)!r}; name each model to label, '
        'such as cluster_models'
      )
    labels.assign(
      export_dir.value,
      models.value,
      labels.Labels(versions, canary_share.value),
    )
    named = ', '.join(f'{name} {version}' for name, version in versions.items())
    logging.info(
      'Labels of %s: %s.', ' and '.join(models.value), named or 'none'
    )

  command.run(main)


def _parse(entries: list[str]) -> dict[str, int]:
  """Returns label -> version.

  Raises:
    UserError: If an entry is not `label=version`, or a label is given twice.
  """
  versions = {}
  for entry in entries:
    name, separator, version = entry.partition('=')
    if not separator or not version.isdecimal():
      raise errors.UserError(
        f'--labels must be label=version, such as stable=3, got {entry!r}'
      )
    if name in versions:
      raise errors.UserError(f'--labels names {name!r} twice; give it once')
    versions[name] = int(version)
  return versions


if __name__ == '__main__':
  _main()
