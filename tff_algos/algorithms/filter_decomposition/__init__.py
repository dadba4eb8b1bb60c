"""Filter decomposition: atoms and coefficients (Chen and Qiu 2025)."""
