import pytest

from configs.fed_avg import digits
from tff_algos.core import errors
from tff_algos.experiments import experiment, round_description


def test_config_alone_gives_what_the_dataset_gives(digits_dataset):
  config = experiment.parse(digits.get_config('smoke'))
  text = round_description.describe(config)
  assert text == round_description.describe(config, digits_dataset)
  assert text.startswith('fed_avg: 24 clients, 1 cluster model\n')
  assert 'x=float32[?,8,8,1],y=int32[?]' in text


@pytest.mark.parametrize(
  ('changes', 'missing'),
  [
    (
      {
        'partition': {'law': 'natural', 'num_clients': None},
        'sizes': {'law': 'equal', 'minimum': None, 'maximum': None},
      },
      'partition.num_clients.*--workdir',
    ),
    (
      {
        'distributions': {'kind': 'identity', 'quarter_turns': None},
        'source': {'name': 'idx', 'options': {'folder': 'nowhere'}},
      },
      r'nowhere.*--workdir',
    ),
  ],
)
def test_what_only_data_tell_is_refused_without_them(changes, missing):
  values = digits.get_config('smoke').to_dict()
  for name, entries in changes.items():
    values['dataset'][name] = {**values['dataset'][name], **entries}
  config = experiment.parse_plain(values)
  with pytest.raises(errors.DataError, match=missing):
    round_description.describe(config)
