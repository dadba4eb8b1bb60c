"""A package as users write it: an algorithm, a model and a source, registered.

`tests/end_to_end/plugins_test.py` copies it out of the tree.
"""

import tff_algos

from . import half_step, net, rings

tff_algos.register_algorithm(
  'half_step', half_step.HalfStepConfig, half_step.build_half_step
)
tff_algos.register_model('ring_net', net.RingNetConfig, net.build)
tff_algos.register_source('rings', rings.Options, rings.Rings)
