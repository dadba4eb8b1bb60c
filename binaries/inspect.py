r"""Looks at raw data and prints a config file for them.

  python -m binaries.inspect --path=data/visits.csv > visits.py

reads the first rows of a CSV (also .gz and .xz) or Parquet file, the file names
of a folder of images (client/class/file), or a folder of arrays (x.npy, y.npy,
client.npy), and guesses the client, the label and the type of each column;
comments have the evidence. Check the file, edit it, and run it:

  python -m binaries.run --config=visits.py --workdir=runs/visits

docs/own_data.md has the whole path.
"""

import shlex

from absl import flags

from binaries import command


def _main() -> None:
  path = flags.DEFINE_string(
    'path', None, 'File of a table, or folder of images or arrays.'
  )
  roles = {
    role: flags.DEFINE_string(
      role, None, f'Column of a table with the {role}; default: guessed.'
    )
    for role in ('client', 'label', 'time')
  }
  flags.mark_flag_as_required('path')

  def main() -> None:
    from tff_algos.experiments.own_data import inspection

    given = {role: flag.value for role, flag in roles.items() if flag.value}
    words = [f'--{key}={value}' for key, value in given.items()]
    line = shlex.join(
      ['python', '-m', 'binaries.inspect', f'--path={path.value}', *words]
    )
    print(inspection.propose_file(path.value, line, given))

  command.run(main)


if __name__ == '__main__':
  _main()
