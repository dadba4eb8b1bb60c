"""Dataset cards: sizes, labels and distributions of clients."""
