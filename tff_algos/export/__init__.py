"""Export of SavedModel bundles, loadable by TensorFlow alone."""
