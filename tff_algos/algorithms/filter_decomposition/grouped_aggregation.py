"""Aggregation of decomposed models by group of weights, or as kernels.

A host is an algorithm whose phase uploads `local_weights` and takes their mean,
and whose server state has `model_weights`. The host's own server update
receives the means of all groups, joined to one model. So the kernels of the new
model are products of a mean of coefficients and a mean of atoms: a mean of m
clients' kernels and m^2 - m latent ones (Chen and Qiu 2025, section 5.1).
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tff_algos.algorithms.filter_decomposition import filter_groups
from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import factored_weights, filters, trees
from tff_algos.rounds import aggregation, composer

_WHOLE = 'local_weights'
LOCAL_KERNELS = 'local_kernels'


class _Upload(NamedTuple):
  """Upload in place of a model: its parts.

  Attributes:
    fields: Names of its parts.
    part: (model's weights, field) -> that part of them.
    merge: (field -> mean of that part, old model's weights) -> new weights.
    kept: Names of weights that the server keeps as they are.
  """

  fields: Sequence[str]
  part: Callable[[model_lib.Weights, str], Structure]
  merge: Callable[
    [Mapping[str, Structure], model_lib.Weights], model_lib.Weights
  ]
  kept: Sequence[str] = ()


def by_group(
  phase: algorithm.Phase,
  groups: filter_groups.Groups,
  sent: Sequence[str] = filter_groups.GROUPS,
  *,
  factors_anew: bool = False,
) -> algorithm.Phase:
  """Returns the host's phase with one field of the upload for each group.

  Args:
    phase: The host's phase.
    groups: group -> names of weights.
    sent: Groups that are uploaded and averaged. The others do not leave the
      client, and the server's are unchanged, bit for bit, with all entries of
      its state under their names (an optimizer's slots).
    factors_anew: Whether the product of the mean factors is then factored anew,
      as `by_kernel` does with its mean: a control, as other factors of the same
      kernels are trained otherwise.
  """
  names = {
    f'local_{group}': members
    for group, members in groups.items()
    if group in sent
  }

  def merge(means, old):
    for mean in means.values():
      old = filter_groups.put(old, mean)
    if factors_anew:
      return _factor(factored_weights.build_kernels(old), old)
    return old

  kept = [group for group in groups if group not in sent]
  return _replace_upload(
    phase,
    _Upload(
      list(names),
      lambda weights, field: filter_groups.take(weights, names[field]),
      merge,
      filter_groups.names_of(groups, kept),
    ),
  )


def by_kernel(phase: algorithm.Phase) -> algorithm.Phase:
  """Returns the host's phase with kernels uploaded, not their factors.

  The mean of the kernels, as without decomposition, is then factored anew by
  `filters.factor_kernel`, exactly if there are as many atoms as pixels of a
  filter. This control separates the effect of averaging factors from the effect
  of training them.
  """

  def merge(means, old):
    (plain,) = means.values()
    return _factor(plain, old)

  return _replace_upload(
    phase,
    _Upload(
      [LOCAL_KERNELS],
      lambda weights, field: factored_weights.build_kernels(weights),
      merge,
    ),
  )


def _factor(plain, old):
  """Returns the weights with kernels factored where the old ones' are."""
  made = {}
  for layer in factored_weights.factored_layers(old):
    num_atoms = int(old[f'{layer}/atoms'].shape[-1])
    kernel = plain[f'{layer}/kernel']
    made[layer] = filters.factor_kernel(kernel, num_atoms)
  return factored_weights.replace_kernels(plain, made)


def kernels_beyond_factors(model: model_lib.Model) -> int:
  """Returns the number of scalars of a model's kernels minus its factors'."""
  spec = model.weights_spec()
  sizes = 0
  for layer in factored_weights.factored_layers(spec):
    atoms, coefficients = factored_weights.take_factors(spec, layer)
    kernel = [*atoms.shape[:2], *coefficients.shape[1:]]
    factors = trees.num_entries((atoms, coefficients))
    sizes += math.prod(kernel) - factors  # pyright: ignore[reportArgumentType, reportCallIssue]
  return sizes


def _replace_upload(phase, upload):
  others = {
    field: aggregator
    for field, aggregator in phase.aggregation.items()
    if field != _WHOLE
  }
  whole = phase.aggregation[_WHOLE]

  def client_work(*arguments):
    output = phase.client_work(*arguments)
    result = composer.as_fields(output.result)
    weights = result.pop(_WHOLE)
    for field in upload.fields:
      result[field] = upload.part(weights, field)
    return output._replace(result=result)

  def server_update(server_state, aggregates):
    old = server_state.model_weights
    means = {field: aggregates[field].value for field in upload.fields}
    # All parts have the same weights.
    weight = aggregates[upload.fields[0]].weight
    updated, metrics = phase.server_update(
      server_state,
      {
        **{field: aggregates[field] for field in others},
        _WHOLE: aggregation.Mean(upload.merge(means, old), weight),
      },
    )
    return _put_back(server_state, updated, upload.kept), metrics

  def start_of(field):
    start = phase.uploads[_WHOLE]
    return lambda *arguments: upload.part(start(*arguments), field)

  uploads = {one: phase.uploads[one] for one in phase.uploads if one != _WHOLE}
  if _WHOLE in phase.uploads:
    uploads.update({field: start_of(field) for field in upload.fields})
  return phase._replace(
    client_work=client_work,
    aggregation={**others, **dict.fromkeys(upload.fields, whole)},
    server_update=server_update,
    uploads=uploads,
  )


def _put_back(old, new, names):
  """Returns the new state with all entries of these names from the old one."""
  if isinstance(new, Mapping):
    return OrderedDict(
      (name, old[name] if name in names else leaf) for name, leaf in new.items()
    )
  if isinstance(new, tuple):
    parts = [_put_back(*one, names) for one in zip(old, new, strict=True)]
    return type(new)(*parts) if hasattr(new, '_fields') else tuple(parts)
  return new
