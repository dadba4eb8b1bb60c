r"""Runs an experiment with several seeds and reports mean and spread.

  python -m binaries.sweep --config=configs/fed_soft/synthetic.py:10_90 \
    --workdir=runs/synthetic_10_90 --num_seeds=5

Seed k sets config.seed and config.dataset.seed and has its own folder,
<workdir>/seed_k. Writes <workdir>/sweep.csv (one row a seed) and prints the
mean and the standard deviation over seeds of the metrics that --metrics
selects.
"""

import json
import pathlib
import statistics

from absl import flags

from binaries import (
  command,
  evaluate,
  experiment,
  output,
  preprocess,
  train,
)

_DEFAULT_METRICS = (
  'held_out/,participating/test/,participating/train/,participating/membership/'
)


def sweep(config, folder: str, num_seeds: int) -> list[dict[str, float]]:
  """Runs the seeds 0 ... num_seeds - 1; returns the last metrics of each.

  Args:
    config: The `ConfigDict` of the experiment.
    folder: Where each seed gets its folder; a seed that was run before goes
      on where it stopped.
    num_seeds: How many, >= 1.
  """
  rows = []
  for seed in range(num_seeds):
    with config.unlocked():
      config.seed = seed
      config.dataset.seed = seed
    parsed = experiment.parse(config)
    seed_folder = pathlib.Path(folder, f'seed_{seed}')
    preprocess.preprocess(parsed.dataset, seed_folder)
    train.train(parsed, seed_folder)
    evaluate.evaluate(parsed, seed_folder)
    summary = json.loads(
      pathlib.Path(seed_folder, 'evaluation', 'summary.json').read_text()
    )
    rows.append({'seed': seed, **summary['last']})
  output.write_table(pathlib.Path(folder, 'sweep.csv'), rows)
  return rows


def spread(rows: list[dict[str, float]], prefixes: list[str]) -> str:
  """Returns mean and standard deviation over seeds, one metric a line."""
  lines = [f'{"mean":>10} {"std":>9}  metric ({len(rows)} seeds)']
  for name in rows[0]:
    if any(name.startswith(prefix) for prefix in prefixes):
      values = [row[name] for row in rows]
      deviation = statistics.stdev(values) if len(values) > 1 else 0.0
      lines.append(f'{statistics.mean(values):10.3f} {deviation:9.3f}  {name}')
  return '\n'.join(lines)


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  num_seeds = flags.DEFINE_integer(
    'num_seeds', 5, 'How many seeds, from 0.', lower_bound=1
  )
  metrics = flags.DEFINE_list(
    'metrics', _DEFAULT_METRICS, 'Starts of the metric names to print.'
  )
  command.run(
    lambda: print(
      spread(sweep(config.value, workdir.value, num_seeds.value), metrics.value)
    )
  )


if __name__ == '__main__':
  _main()
