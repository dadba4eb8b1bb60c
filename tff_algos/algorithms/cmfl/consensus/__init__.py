"""How a committee of clients agrees: a protocol over messages."""
