from pipelines import options
from pipelines.partitions import clients


def test_groups_and_names():
  groups = clients.count_groups(
    options.PartitionConfig('iid', num_clients=3, num_unseen_clients=1)
  )
  assert clients.repeat_groups(groups) == (
    *('participating', 'participating', 'participating'),
    'unseen',
  )
  assert clients.name_clients(groups) == (
    *('client_00000', 'client_00001', 'client_00002'),
    'unseen_00000',
  )


def test_names_sort_as_they_stand():
  names = clients.name_clients({'participating': 100_001, 'unseen': 0})
  assert names[-1] == 'client_100000'
  assert list(names) == sorted(names)
