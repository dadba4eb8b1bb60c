"""The process of a run that imports nothing, and does what its config says."""

import json
import os
import pathlib
import signal
import socket
import sys
import time


def main() -> None:
  with socket.socket(fileno=int(sys.argv[1])) as connection:
    with connection.makefile() as request:
      workdir, run, config, _ = json.load(request)
    folder = pathlib.Path(workdir, run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'pid').write_text(str(os.getpid()))
    print('W1125 09:00:00.000000 140293 loop.py:103] slow disk', flush=True)
    print('I1125 09:00:00.000000 140293 loop.py:103] all is well', flush=True)
    if config.get('dies'):
      os.kill(os.getpid(), signal.SIGKILL)
    if config.get('sleeps'):
      signal.signal(signal.SIGTERM, signal.default_int_handler)
      (folder / 'sleeps').touch()
      try:
        time.sleep(120)
      except KeyboardInterrupt:
        (folder / 'saved').touch()
        sys.exit(143)
    connection.sendall(config.get('answer', 'done').encode())


if __name__ == '__main__':
  main()
