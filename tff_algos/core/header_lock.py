"""Lock for reading the headers of NumPy's files in several threads."""

import threading

# CPython 3.11 counts the depth of syntax trees over all threads
# (python/cpython#106905), and NumPy parses one in each header: without the
# lock two threads at once raise, rarely, SystemError.
HEADER_LOCK = threading.Lock()
