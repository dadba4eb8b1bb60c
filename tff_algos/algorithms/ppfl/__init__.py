"""PPFL: canonical models and membership vectors (Di et al. 2023).

In reading order:
  ppfl                 the rounds of Algorithms 1 to 3: options, states, plan
  mixing               the model: canonical models mixed by a membership (Eq. 4)
  mixed_training       a client's steps on the model weights theta
  membership_descent   mirror steps on its membership c_i (Eq. 25)
  affinity             the penalty that couples memberships, and label counts
  membership_exchange  what is sent per client and phase, and its cost; the
                       server's mirror steps (Algorithm 1)
  stationarity         measurement of the objective and its stationarity
"""
