"""Text models: embeddings, LSTMs, transformers."""
