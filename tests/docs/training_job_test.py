"""The example Job of several pods: its names agree, and TF_CONFIG is ours."""

import pytest
import yaml

from tests.testing import programs
from tff_algos.runtimes.distributed import process_cluster

_FILE = programs.ROOT / 'docs' / 'examples' / 'training_job.yaml'


@pytest.fixture(scope='module')
def manifests():
  found = [*yaml.safe_load_all(_FILE.read_text())]
  return {manifest['kind']: manifest for manifest in found}


@pytest.fixture
def pod(manifests):
  return manifests['Job']['spec']['template']['spec']


def _environment(pod, index):
  """Returns the variables of a container as Kubernetes sets them."""
  (container,) = pod['containers']
  found = {}
  for variable in container['env']:
    source = variable.get('valueFrom')
    if source is not None:
      assert source['fieldRef']['fieldPath'].endswith("-completion-index']")
      found[variable['name']] = str(index)
    else:
      value = variable['value']
      for name, known in found.items():
        value = value.replace(f'$({name})', known)
      found[variable['name']] = value
  return found


def test_every_pod_finds_itself_in_tf_config(manifests, pod):
  job, service = manifests['Job'], manifests['Service']
  size = job['spec']['completions']
  assert job['spec']['parallelism'] == size > 1
  assert job['spec']['completionMode'] == 'Indexed'
  (port,) = service['spec']['ports']
  for index in range(size):
    cluster = process_cluster.from_environment(_environment(pod, index))
    assert cluster.index == index
    # Pod and service give the name: <job>-<index>.<subdomain>.
    assert cluster.addresses == tuple(
      f'{job["metadata"]["name"]}-{i}.{pod["subdomain"]}:{port["port"]}'
      for i in range(size)
    )


def test_the_service_is_headless_and_selects_the_pods(manifests, pod):
  service = manifests['Service']
  assert service['spec']['clusterIP'] == 'None'
  assert service['spec']['publishNotReadyAddresses']
  assert service['metadata']['name'] == pod['subdomain']
  labels = manifests['Job']['spec']['template']['metadata']['labels']
  policy = manifests['NetworkPolicy']['spec']
  assert service['spec']['selector'] == labels
  assert policy['podSelector']['matchLabels'] == labels
  (rule,) = policy['ingress']
  assert rule['from'] == [{'podSelector': {'matchLabels': labels}}]


def test_its_command_trains_on_the_volume(pod, launcher):
  (container,) = pod['containers']
  assert container['command'][1:] == ['-m', 'binaries.train']
  flags = dict(one.removeprefix('--').split('=') for one in container['args'])
  help_text = launcher.run('binaries.train', '--help').stdout
  for name in flags:
    assert name.startswith('config.') or f'--{name}:' in help_text
  assert flags['config.runtime.trust_network'] == 'True'
  assert (programs.ROOT / flags['config']).exists()
  (mount,) = container['volumeMounts']
  assert flags['workdir'].startswith(mount['mountPath'])


@pytest.mark.verify
def test_it_fits_the_schema_of_kubernetes(manifests):
  kubernetes_validate = pytest.importorskip('kubernetes_validate')
  for manifest in manifests.values():
    for version in ('1.28', '1.31'):
      kubernetes_validate.validate(manifest, version, strict=True)
