"""Filter decomposition: atoms and coefficients (Chen and Qiu 2025).

In reading order:
  filter_decomposition  the round around a host: options, phases, plan
  filter_groups         atoms, coefficients, head and other weights by name
  grouped_aggregation   the host's mean, group by group (Algorithm 1)
  slow_weights          groups that travel every few rounds (Algorithm 2)
  local_atoms           atoms that a client keeps for itself (section 4.1)
  latent_clients        measurements of section 5.1
"""
