r"""Trains an experiment on the dataset in its workdir.

  python -m binaries.train --config=configs/fed_soft/digits.py \
    --workdir=runs/digits

needs <workdir>/dataset (binaries.preprocess makes it) and writes metrics.csv,
memberships, TensorBoard logs and checkpoints there. After an interruption the
same command resumes from the latest checkpoint and ends in the same state. A
larger --config.training.num_rounds trains a finished run on; fewer rounds than
it has are an error. --continue_from=RUN goes on from another run, on another
dataset: its states move by client id, and rounds go on counting.
--dataset=s3://bucket/digits reads a published dataset by range in place of
<workdir>/dataset (docs/scale.md).

The progress bar shows the training loss of the round's clients and, if clients
have validation examples, their personalized models' score on these.

For distributed training start it once for each process listed in TF_CONFIG
(docs/scale.md); process 0 writes.
"""

from absl import flags

from binaries import command, mirrored_flags


def _main() -> None:
  config, workdir = command.define_experiment_flags()
  continue_from = flags.DEFINE_string(
    'continue_from',
    '',
    'Workdir of a run to continue on this dataset (config.continuation).',
  )
  dataset = flags.DEFINE_string(
    'dataset',
    '',
    'Address of a published dataset or workdir, such as s3://bucket/digits, of '
    'which this run and its evaluation read what they need.',
  )

  def main() -> None:
    from tff_algos.experiments import experiment, training
    from tff_algos.runtimes.distributed import process_cluster

    # Before the workdir changes.
    parsed = experiment.parse(config.value)
    cluster = process_cluster.from_environment()
    if dataset.value:
      experiment.refer_to_dataset(workdir.value, dataset.value)
    training.train(
      parsed,
      workdir.value,
      cluster,
      parent=continue_from.value,
      on_checkpoint=mirrored_flags.publish,
    )

  command.run(main)


if __name__ == '__main__':
  _main()
