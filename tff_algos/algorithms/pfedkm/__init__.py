"""pFedKM: k-means over client models (Tang, Guo and Guo 2021)."""
