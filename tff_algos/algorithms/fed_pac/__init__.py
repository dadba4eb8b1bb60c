"""FedPAC: feature alignment, combined heads (Xu et al. 2023)."""
