"""FedSoft: soft clusters, proximal updates (Ruan and Joe-Wong 2021).

In reading order:
  fed_soft          the round of Algorithm 1: options, states, phases, plan
  importance        importance weights of a client's examples
  client_selection  draws by cluster (Eq. 6, host)
  center_download   what a client is sent of the cluster models
  quadratic_risks, bounds
                    Theorems 2 to 4 on quadratic risks (host)
"""
