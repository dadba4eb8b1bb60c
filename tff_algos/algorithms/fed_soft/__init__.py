"""FedSoft: soft clusters, proximal updates (Ruan and Joe-Wong 2021)."""
