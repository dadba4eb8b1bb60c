# Entry point: `make help`. Needs git, make, a C compiler and
# Python 3.11 on Linux x86-64; all else is installed into .venv.

WORKDIR ?= runs/demo
# Virtual environments of the benchmark's peers, one folder each.
PEERS ?= benchmarks/.peers
export PEERS
# The first of these that is Python 3.11 makes the environment.
PYTHONS := $(PYTHON) python3.11 python3

# The environment keeps a copy of the lock it was made from, written last: it
# is up to date if the copy equals the lock, and half-made if there is none.
# An environment with CUDA stays one until `make clean`.
MADE_FROM := .venv/made-from
LOCK := $(notdir $(firstword $(wildcard $(MADE_FROM)/*.lock) requirements.lock))

# What the worker of the runtime pjrt is made from, one lock a kind of device.
ACCELERATOR := tff_algos/runtimes/pjrt/worker/locks
JAX_LOCK := $(if $(DEVICE),$(DEVICE).lock,$(notdir $(firstword \
  $(wildcard .venv-accelerator/made-from/*.lock) cpu.lock)))

# Settings of the caller's shell must not affect the commands here.
unexport PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTHONSTARTUP
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
export PYTHONNOUSERSITE := 1

define FIND_PYTHON
for python in $(PYTHONS) ''; do \
  if "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
    2>/dev/null; then break; fi; \
done; \
if test -z "$$python"; then \
  echo 'make: needs Python 3.11; TensorFlow Federated 0.87 runs on no newer' \
    'one. Install it, for example `apt install python3.11 python3.11-venv`,' \
    'or name it: `make env PYTHON=/path/to/python3.11`.' >&2; exit 1; \
fi
endef

.DEFAULT_GOAL := help
.PHONY: help env env-cuda env-accelerator demo test verify bench bench-data \
  bench-serving growth bench-peers lint api notebooks reproduction wheel lock sbom advisories \
  doctor clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

env: ## create .venv from the lock, unless it is up to date
	@if cmp -s $(LOCK) $(MADE_FROM)/$(LOCK) && test -x .venv/bin/python; \
	then exit; fi; \
	if test "$$(uname -sm)" != 'Linux x86_64'; then \
	  echo 'make env: TensorFlow Federated 0.87 has wheels for Linux x86-64' \
	    "only, and this is $$(uname -sm)." >&2; exit 1; fi; \
	$(FIND_PYTHON); \
	echo 'Making .venv from $(LOCK): one to three minutes, six with CUDA.'; \
	rm -rf .venv; \
	"$$python" -m venv .venv || { rm -rf .venv; \
	  echo 'make env: this Python has no venv; try' \
	    '`apt install python3.11-venv`.' >&2; exit 1; }; \
	.venv/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-input --no-deps --require-hashes --requirement $(LOCK) || { \
	  echo 'make env: the installation failed, see above; `make env` tries' \
	    'again from the start.' >&2; exit 1; }; \
	mkdir $(MADE_FROM); \
	cp $(LOCK) $(MADE_FROM)/.new; \
	mv $(MADE_FROM)/.new $(MADE_FROM)/$(LOCK)

env-cuda: ## the same, with CUDA 11.8 for GPUs
	@$(MAKE) --no-print-directory env LOCK=requirements-cuda.lock

# The folder gets its name when it is whole.
env-accelerator: ## jax for runtime pjrt; DEVICE=cpu, cuda12, cuda13 or tpu
	@set -e; $(FIND_PYTHON); folder=.venv-accelerator; \
	lock=$(ACCELERATOR)/$(JAX_LOCK); \
	if test ! -f "$$lock"; then \
	  echo 'make env-accelerator: DEVICE is cpu, cuda12, cuda13 or tpu, got' \
	    '$(DEVICE).' >&2; exit 1; fi; \
	if cmp -s "$$lock" "$$folder/made-from/$(JAX_LOCK)"; then exit; fi; \
	echo "Making $$folder from $$lock."; \
	rm -rf "$$folder" "$$folder.new"; \
	"$$python" -m venv "$$folder.new"; \
	"$$folder.new/bin/python" -m pip install --quiet --no-input --no-deps \
	  --disable-pip-version-check --require-hashes --requirement "$$lock" || { \
	  rm -rf "$$folder.new"; \
	  echo 'make env-accelerator: the installation failed, see above.' >&2; \
	  exit 1; }; \
	mkdir "$$folder.new/made-from"; \
	cp "$$lock" "$$folder.new/made-from"; \
	mv "$$folder.new" "$$folder"

demo: env ## run an experiment, raw data to served prediction; WORKDIR=DIR
	.venv/bin/python -m binaries.run --config=configs/fed_soft/digits.py \
	  --workdir='$(WORKDIR)'

# tests/testing/suite.py orders the groups of tests.
PYTEST := .venv/bin/python -m pytest -n logical --maxprocesses=8 \
  --dist=loadgroup --no-loadscope-reorder --durations=25 \
  $(if $(SHUFFLE),--shuffle=$(SHUFFLE))

test: env env-accelerator ## run the tests of the first tier; SHUFFLE=SEED
	$(PYTEST)

verify: env env-accelerator ## run the second tier: theory, sweeps, kills, mutation tests
	$(PYTEST) -m verify
	.venv/bin/python -m tests.mutations

bench: env env-accelerator ## benchmark training; CASES, CONTENDERS, ROUNDS, OUT=FILE
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m benchmarks.run \
	  $(if $(CASES),--cases='$(CASES)') $(if $(OUT),--out='$(OUT)') \
	  $(if $(CONTENDERS),--contenders='$(CONTENDERS)') \
	  $(if $(ROUNDS),--rounds='$(ROUNDS)')

bench-data: env ## benchmark pipelines; EXAMPLES, CLIENTS, SIDE, WORKERS, OUT=FILE
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m benchmarks.pipeline \
	  $(if $(EXAMPLES),--examples='$(EXAMPLES)') $(if $(SIDE),--side='$(SIDE)') \
	  $(if $(CLIENTS),--clients='$(CLIENTS)') $(if $(OUT),--out='$(OUT)') \
	  $(if $(WORKERS),--workers='$(WORKERS)')

bench-serving: env ## benchmark a server of many clients; CLIENTS, OUT=FILE
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m benchmarks.serving \
	  $(if $(CLIENTS),--clients='$(CLIENTS)') $(if $(OUT),--out='$(OUT)')

growth: env ## benchmark growth with clients and examples; CLIENTS, OUT=FOLDER
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m benchmarks.growth.run \
	  $(if $(CLIENTS),--clients='$(CLIENTS)') $(if $(OUT),--out='$(OUT)')

# A folder gets its name when it is whole; only its bin/python is ever called.
bench-peers: ## create the environments of other frameworks for bench
	@set -e; $(FIND_PYTHON); \
	for pins in benchmarks/peers/*.txt; do \
	  folder="$$PEERS/$$(basename "$$pins" .txt)"; \
	  if cmp -s "$$pins" "$$folder/made-from"; then continue; fi; \
	  echo "Making $$folder."; \
	  rm -rf "$$folder" "$$folder.new"; \
	  "$$python" -m venv "$$folder.new"; \
	  "$$folder.new/bin/python" -m pip install --quiet --no-input --no-deps \
	    --disable-pip-version-check --requirement "$$pins" || { \
	    rm -rf "$$folder.new"; \
	    echo "make bench-peers: $$folder could not be made, see above and" \
	      'benchmarks/README.md; the next call goes on there.' >&2; exit 1; }; \
	  cp "$$pins" "$$folder.new/made-from"; \
	  mv "$$folder.new" "$$folder"; \
	done

lint: env ## check style, format and types
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m pyright

api: env ## build the API pages from the docstrings, build/api/index.html
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m docs.api_pages

notebooks: env ## execute docs/notebooks and write their outputs; NAMES
	.venv/bin/python -m tests.testing.notebooks $(NAMES)

reproduction: env ## write figures of docs/reproduction from results; RUN=ID, PARALLEL=N
	@TF_CPP_MIN_LOG_LEVEL=3 .venv/bin/python -m docs.reproduction.pages \
	  $(if $(RUN),--run='$(RUN)') $(if $(PARALLEL),--parallel='$(PARALLEL)')

# From scratch: setuptools would also pack what lies in build/ from before.
wheel: env ## build dist/*.whl, without network
	rm -rf build/lib build/bdist.* tff_algos.egg-info
	.venv/bin/python -m pip wheel --quiet --no-deps --no-index \
	  --no-build-isolation --wheel-dir=dist .
	rm -rf build/lib build/bdist.* tff_algos.egg-info

# Runs a tool of a package in an environment of its own.
define WITH_TOOL
set -e; $(FIND_PYTHON); tool=$$(mktemp -d); \
trap 'rm -rf "$$tool"' EXIT INT TERM; \
"$$python" -m venv "$$tool"; \
"$$tool/bin/python" -m pip install --quiet --disable-pip-version-check
endef

# TFF's own pins cannot be met; pyproject.toml overrides them, which uv honours.
lock: ## resolve pyproject.toml into both locks; UPGRADE=1 upgrades versions
	@$(WITH_TOOL) uv; \
	compile() { "$$tool/bin/uv" pip compile --quiet pyproject.toml \
	  --python-version 3.11 --generate-hashes --no-header \
	  $(if $(UPGRADE),--upgrade) "$$@"; }; \
	compile --extra all --extra dev --output-file requirements.lock; \
	compile --extra all --extra dev --extra cuda \
	  --output-file requirements-cuda.lock; \
	for device in cpu cuda12 cuda13 tpu; do \
	  "$$tool/bin/uv" pip compile --quiet --no-config --python-version 3.11 \
	    --generate-hashes --no-header $(if $(UPGRADE),--upgrade) \
	    $(ACCELERATOR)/$$device.in \
	    --output-file $(ACCELERATOR)/$$device.lock; \
	done

sbom: ## list the packages of the lock as CycloneDX JSON, build/sbom.json
	@$(WITH_TOOL) cyclonedx-bom==7.5.0; mkdir -p build; \
	PYTHONWARNINGS=ignore "$$tool/bin/cyclonedx-py" requirements \
	  requirements.lock --output-reproducible --output-format JSON \
	  --output-file build/sbom.json

advisories: ## compare the lock with the advisories of PyPI; needs pypi.org
	@$(WITH_TOOL) pip-audit==2.10.1; "$$tool/bin/pip-audit" --strict \
	  --disable-pip --progress-spinner off --requirement requirements.lock

doctor: env ## check hardware, network and software, and suggest fixes
	@.venv/bin/python -m binaries.doctor

clean: ## remove environments and caches; runs/ stays
	rm -rf .venv .venv-accelerator .venv-accelerator.new benchmarks/.peers
	rm -rf .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
