"""CMFL: a committee of clients replaces the server (Che et al. 2022).

In reading order:
  cmfl             the round of Algorithm 3: options, states, phases, plan
  committee_roles  draws of the committee and the training clients (host)
  last_gradient    the upload of Eq. 5 as printed
  committee        scoring, selection and election (Eq. 7 and 8)
  consensus/       the members' votes, message by message (Algorithm 2)
  audit/           audit log of committee decisions, and its verification
  bounds           numerical evaluation of Theorem 1 (host)
"""
