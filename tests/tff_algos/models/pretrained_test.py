"""Networks start from a file: same outputs, fresh layers, and bad files."""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.core import errors

_SEED, _OTHER_SEED = (3, 4), (5, 6)
_X = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)


def _build(num_outputs=5, **options):
  return toys.build({'name': 'cifar_cnn', **options}, (8, 8, 1), num_outputs)


@pytest.fixture(name='learned')
def _learned():
  return {
    name: leaf.numpy() for name, leaf in _build().initialize(_SEED).items()
  }


@pytest.fixture(name='file')
def _file(tmp_path, learned):
  path = tmp_path / 'weights.npz'
  np.savez(path, **learned)
  return str(path)


def test_all_seeds_start_at_the_file(file, learned):
  weights = _build(pretrained={'file': file}).initialize(_OTHER_SEED)
  assert list(weights) == list(learned)
  for name, leaf in weights.items():
    np.testing.assert_array_equal(leaf, learned[name])


@pytest.mark.parametrize('num_atoms', [9, 12])
def test_3x3_kernels_of_the_file_are_factored_without_loss(file, num_atoms):
  """The logits are those of the ordinary network (Eckart and Young)."""
  decomposition = {'num_atoms': num_atoms, 'atom_init': 'kernel'}
  model = _build(pretrained={'file': file}, decomposition=decomposition)
  expected = _build().apply(_build().initialize(_SEED), _X)
  outputs = model.apply(model.initialize(_OTHER_SEED), _X)
  np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-5)


def test_a_fresh_head_has_other_classes_and_is_random(file, learned):
  (head,) = {
    name
    for name, leaf in learned.items()
    if leaf.shape[-1:] == (5,) and name.endswith('/kernel')
  }
  layer = head.removesuffix('/kernel')
  model = _build(num_outputs=7, pretrained={'file': file, 'fresh': (layer,)})
  weights, others = (model.initialize(s) for s in (_SEED, _OTHER_SEED))
  for name, leaf in weights.items():
    if name.startswith(f'{layer}/'):
      assert leaf.shape[-1] == 7
    else:
      np.testing.assert_array_equal(leaf, learned[name])
  assert np.abs(weights[head] - others[head]).max() > 0.01
  random = _build(num_outputs=7).initialize(_SEED)
  np.testing.assert_array_equal(weights[head], random[head])


def _write(tmp_path, arrays):
  path = tmp_path / 'bad.npz'
  np.savez(path, **arrays)
  return {'file': str(path)}


def _without(arrays, name):
  return {key: value for key, value in arrays.items() if key != name}


def test_weights_that_are_absent_or_unknown_are_named(tmp_path, learned):
  first, *_ = learned
  arrays = {**_without(learned, first), 'other': np.zeros(2)}
  text = f'lacks {first} and has, unknown to the network, other. .* {first}, '
  with pytest.raises(errors.ConfigError, match=text):
    _build(pretrained=_write(tmp_path, arrays))


@pytest.mark.parametrize(
  ('change', 'found'),
  [
    (lambda leaf: leaf[..., np.newaxis], r'float32 of shape \(.*1\)'),
    (lambda leaf: leaf.astype(np.int32), 'int32 of shape'),
    (lambda leaf: leaf * np.nan, 'float32 of shape'),
    (lambda leaf: 1e300 * leaf.astype(np.float64), 'float64 of shape'),
  ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, learned, change, found):
  name = next(iter(learned))
  arrays = {**learned, name: change(learned[name])}
  text = f"'{name}' of pretrained.file .* must be floats .* got {found}"
  with pytest.raises(errors.ConfigError, match=text):
    _build(pretrained=_write(tmp_path, arrays))


def test_files_that_are_no_archives_are_refused(tmp_path):
  text, array, pickled, empty, damaged = (
    tmp_path / name for name in ('a.txt', 'a.npy', 'p.npz', 'e.npz', 'd.npz')
  )
  empty.touch()
  np.savez_compressed(damaged, a=np.arange(1000))
  content = bytearray(damaged.read_bytes())
  content[60:400] = bytes(340)
  damaged.write_bytes(content)
  text.write_text('no numbers')
  np.save(array, np.zeros(3))
  np.savez(pickled, a=np.array([None]))
  absent = tmp_path / 'absent.npz'
  for path in (text, array, pickled, empty, damaged, absent):
    with pytest.raises(errors.ConfigError, match=f'{path} cannot be read'):
      _build(pretrained={'file': str(path)})


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'pretrained': {'fresh': ('head',)}}, 'pretrained.file is empty'),
    (
      {
        'pretrained': {'file': 'a.npz'},
        'decomposition': {'num_atoms': 9},
      },
      "set decomposition.atom_init to 'kernel'",
    ),
    (
      {
        'pretrained': {'file': 'a.npz'},
        'low_rank': {'layers': 'convolutions'},
      },
      "low_rank.layers to 'none'",
    ),
  ],
)
def test_options_that_contradict_each_other_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    _build(**options)


def test_a_fresh_layer_that_does_not_exist_is_refused(file):
  # Names are whole: neither a misspelling, nor a beginning, nor nothing.
  for layer in ('haed', 'conv', 'conv_0/k', ''):
    text = (
      f"pretrained.fresh has '{layer}', which is no weight or layer of cifar"
    )
    with pytest.raises(errors.ConfigError, match=text):
      _build(pretrained={'file': file, 'fresh': (layer,)})
