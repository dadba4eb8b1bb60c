"""Client stages: local training, objectives, gradients."""
