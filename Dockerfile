# For a Mac, Windows or Arm host: TensorFlow Federated 0.87 has wheels for Linux
# x86-64 only, so `docker build` and `docker run` need --platform=linux/amd64.
#
#   docker build --platform=linux/amd64 --tag=tff-algos .
#   docker run --platform=linux/amd64 --rm --volume="$PWD/runs:/tff_algos/runs" tff-algos
#   docker run --platform=linux/amd64 --rm tff-algos make test
#
# The second line is `make demo`; its results come out in runs/demo. Checked without
# Docker: hadolint, and the line of `make env` in a folder with these two files alone;
# not built as an image yet.
FROM python:3.11-slim-bookworm

# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /tff_algos

# The environment is a layer of its own, made again when the lock changes.
COPY Makefile requirements.lock ./
RUN make env PYTHON=/usr/local/bin/python3.11 && rm -rf /root/.cache

COPY . .

CMD ["make", "demo"]
