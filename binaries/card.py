r"""Computes the statistics of a federated dataset and writes its dataset card.

  python -m binaries.card --workdir=runs/digits

writes statistics.json, client_statistics.parquet and card.html into the folder
of the current version in <workdir>/dataset; open card.html. Up-to-date files
are kept, unless --force is given. binaries.preprocess does the same after it
has built a dataset.
"""

from absl import flags, logging

from binaries import command


def _main() -> None:
  workdir = flags.DEFINE_string(
    'workdir', None, 'Folder of a run; its dataset is in <workdir>/dataset.'
  )
  flags.mark_flag_as_required('workdir')
  beam_options = command.define_beam_options_flag()
  force = flags.DEFINE_boolean(
    'force', False, 'Whether to replace files that are up to date.'
  )

  def main() -> None:
    from tff_algos.experiments import datasets

    path = datasets.write_card(
      workdir.value, beam_options.value, force=force.value
    )
    logging.info('Card: %s', path)

  command.run(main)


if __name__ == '__main__':
  _main()
