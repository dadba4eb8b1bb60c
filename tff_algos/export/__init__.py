"""SavedModel bundles that TensorFlow alone can load."""
