# make setup | native | demo | test | test-full | check | interop | bench | fuzz | simulate | plans | docs   (only Python 3.11+ and make are needed)
PYTHON ?= python3
# Tests of `make test` also wait, for timers and for other processes: three workers keep two cores busy.
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_STAMP := $(VENV)/.uv
UV_VERSION := 0.13.9
CRATE := $(wildcard native/Cargo.* native/.cargo/*) $(shell find native/src -name '*.rs')
UV = PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" uv

.PHONY: help setup native wheel lock demo test test-full check unit interop interop-older bench fuzz simulate plans docs docs-reference docs-wrap docs-recording clean unit-native unit-python
.DEFAULT_GOAL := help

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Otherwise each process that may not write bytecode (PYTHONDONTWRITEBYTECODE) compiles all it imports:
# 0.5 s of CPU at the start of a node.
setup: $(STAMP) ## Virtual environment with the locked dependencies; leaves .venv/bin/spindle
	-@$(BIN)/python -m compileall -q src

$(UV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || { echo "virtual environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@command -v uv >/dev/null 2>&1 || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(STAMP): requirements.lock pyproject.toml hatch_build.py $(CRATE) | $(UV_STAMP)
	@echo "dependencies: 1.7 GB here and 0.5 GB in ~/.cache; about two minutes"
	@PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/python tools/install.py
	@touch $@
	@echo "ready: $(BIN)/spindle"

native: $(UV_STAMP) ## Build the Rust crate again, after a change or once cargo is installed
	@$(UV) pip install --quiet --no-deps --reinstall-package spindle-log -e .
	@$(BIN)/python -m spindle.common.native

wheel: $(UV_STAMP) ## A wheel in dist/, for pip install on another machine
	@$(UV) build --quiet --wheel --out-dir dist .
	@ls dist/*.whl

lock: ## Resolve the dependencies again and pin them
	@$(UV) pip compile pyproject.toml --all-extras --group dev --universal \
	  --generate-hashes --python-version 3.11 --no-header --quiet -o requirements.lock
	@$(UV) pip compile tools/documents/requirements.in --universal \
	  --generate-hashes --python-version 3.11 --no-header --quiet -o tools/documents/requirements.lock

demo: setup ## The main job on real input: clients in, Spark out, a disk that dies (KEEP=1 leaves the node running)
	@KEEP=$(KEEP) $(BIN)/python -m spindle.pipeline.demo

PYTEST = $(BIN)/python -m pytest -q --dist loadfile --no-loadscope-reorder

test: setup ## Format, lint, types, import rules and all tests but the long ones and interop; some 4 minutes on 2 cores
	@$(MAKE) --no-print-directory -j 2 check unit unit-native

check: setup
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && echo "style: fine"
	@$(BIN)/mypy --no-error-summary && echo "types: fine"
	@$(BIN)/lint-imports --no-cache >/dev/null && echo "imports: fine"
	@$(BIN)/python tools/native_code.py check

# Python finds this copy of the package before the installed one.
PYTHON_ONLY := build/python-only
unit-python: setup ## The tests of what has native code, without it
	@rm -rf $(PYTHON_ONLY) && mkdir -p $(PYTHON_ONLY) && cp -R src/spindle $(PYTHON_ONLY) && rm -f $(PYTHON_ONLY)/spindle/_native.[aj]*
	@PYTHONPATH=$(CURDIR)/$(PYTHON_ONLY) $(PYTEST) -n $(WORKERS) -m "not interop and not full" \
	  tests/log tests/columnar tests/audit tests/common tests/cli/test_plain_install.py tests/cli/test_node_commands.py

# Its tests need no Python.
unit-native: setup
	@$(BIN)/python tools/native_code.py test

unit: setup
	@echo "unit tests: about 3 minutes on 2 quiet cores; failures are named as they come"
	@$(PYTEST) -n $(WORKERS) -m "not interop and not full" tests

interop: setup ## Apache Kafka, its tools and foreign clients against Spindle, the core of it (needs mvn and Java 17+)
	@$(BIN)/python tools/kafka/fetch.py
	@$(PYTEST) -n 2 -m "interop and not full" tests/interop

interop-older: setup ## The release of Kafka before the newest one in mixed clusters, and its tools; SHARE=K/N: a share of the modules
	@$(BIN)/python tools/kafka/fetch.py
	@KAFKA_RELEASE=4.3.1 $(PYTEST) -n 2 -m interop $(if $(SHARE),--share $(SHARE)) tests/interop

test-full: setup ## Everything, some 90 minutes: also mutants, all seeds, long fuzzing, all of interop; SHARE=K/N: a share of what make test and interop leave out
	@$(BIN)/python tools/kafka/fetch.py
	@$(if $(SHARE),$(PYTEST) -n 2 -m full --share $(SHARE) tests,$(PYTEST) -n 2 tests)
	@$(if $(SHARE),,$(MAKE) --no-print-directory interop-older)

fuzz: setup ## Hostile input against a node of its own, for SECONDS (default 300), by SEED; SECURE=1: with TLS, logins and ACLs
	@$(BIN)/python -m verification.fuzz --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(SEED)) $(if $(SECURE),--secure)

simulate: setup ## Deterministic cluster simulation with faults, SEEDS of them (default 1000); DISKS=1: failing directories; CLEANING=1: compaction; SHARES=1: share groups; MUTANTS=1: broken variants
	@$(BIN)/python -m verification.simulation --seeds $(or $(SEEDS),1000) $(if $(FIRST),--first $(FIRST)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(MUTANT),--mutant $(MUTANT)) $(if $(MUTANTS),--mutants) $(if $(DISKS),--disks) $(if $(CLEANING),--cleaning) $(if $(SHARES),--shares)

plans: setup ## Plans of the placement for SEEDS generated clusters (default 5000), checked step by step
	@SPINDLE_PLANS=$(or $(SEEDS),5000) $(BIN)/python -m pytest -q --timeout 0 tests/planner/test_generated_plans.py

bench: setup ## Spindle next to Apache Kafka in one run; a table of ratios
	@$(BIN)/python tools/kafka/fetch.py
	@$(BIN)/python -m benchmarks.run $(ARGS)

DOCS_VENV := build/docs/venv
DOCS_STAMP := $(DOCS_VENV)/.installed

$(DOCS_STAMP): tools/documents/requirements.lock | $(UV_STAMP)
	@$(UV) venv --quiet --clear --python $(BIN)/python $(DOCS_VENV)
	@PATH="$(CURDIR)/$(BIN):$$PATH" uv pip install --quiet --python $(DOCS_VENV)/bin/python --require-hashes -r $<
	@touch $@

docs: $(DOCS_STAMP) ## The documents as a site in build/docs/site, every link checked (its tools lie in build/docs/venv)
	@PYTHONPATH=tools $(DOCS_VENV)/bin/python -m documents.site --build && echo "ready: build/docs/site/index.html"

docs-reference: setup ## The pages of docs/reference, from the tables in the code
	@PYTHONPATH=tools $(BIN)/python -m documents.reference

docs-wrap: setup ## Wrap the paragraphs of the documents at 100 characters
	@PYTHONPATH=tools $(BIN)/python -m documents.wrap

docs-recording: setup $(DOCS_STAMP) ## The pictures of docs/pictures, made again from real output: a disk that dies, a plan, an audit (needs Chromium)
	@PYTHONPATH=tools $(BIN)/python -m documents.recording
	@PYTHONPATH=tools $(BIN)/python -m documents.example_pages
	@PYTHONPATH=tools $(DOCS_VENV)/bin/python -m documents.screenshots

clean: ## Remove what was built
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
