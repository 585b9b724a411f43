# Two commands on a fresh machine: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Flower pins older versions of what holdfast has: its app lives in an environment of its own.
FLOWER := .venv-flower
FLOWER_APP := examples/federated/flower
# Programs that talk to `holdfast speech serve`, for its tests.
CLIENTS := .venv-clients
INSTALL := tools/install.sh $(VENV)
# Each worker takes half of the files in their order, so that a module's fixture is made once, and takes
# from the other's when its own is done. Two for two cores: a third made the whole a minute slower.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal
export PIP_ROOT_USER_ACTION := ignore
# The tests start hundreds of interpreters: where this is set, each compiles every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

# What the testbed's README states: its time is compressed.
DEMO_WINDOWS := --check-before 45s --check-after 10s --preempt-slack 30s --checkpoint 60s --init 1s --long-run 60s

.PHONY: help demo test test-full lint bench docs release flower clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.core ## the main job on the bundled logs: a report, and where all machine time went
	$(BIN)/holdfast --quiet fleet ingest examples/slurm-testbed -o out/testbed
	$(BIN)/holdfast fleet report out/testbed $(DEMO_WINDOWS) --html out/report.html
	$(BIN)/holdfast --quiet fleet ingest examples/ledger -o out/recorded
	$(BIN)/holdfast ledger out/recorded --runs examples/ledger/runs --checkpoint 60s --init 1s --html out/ledger.html

# Debian's packages come while Python's do, and most of their time is the network's. What takes one processor
# runs beside what takes the other, or in the moments in which the tests wait: for a time limit, for the disk.
test: ## everything that must hold: lint, types, contracts, documents, tests
	$(MAKE) --no-print-directory -j3 .bytecode .kernels .debian
	$(MAKE) --no-print-directory -j3 .quick-tests .beside

test-full: $(VENV)/.full $(FLOWER)/.installed $(CLIENTS)/.installed .java .chromium .jpeg lint ## the same and the slow proofs (Spark, Ray, Flower, large logs)
	$(PYTEST) -m "full or not full" < /dev/null

.PHONY: .quick-tests .beside .site
.quick-tests:
	$(PYTEST) < /dev/null

# The tests take longest: the rest has what they leave of the processors.
.beside:
	nice -n 19 $(MAKE) --no-print-directory lint .site

# Both are made once: else each worker of the tests compiles them.
.PHONY: .bytecode .kernels
.bytecode: $(VENV)/.test
	$(BIN)/pytest --collect-only -n 0 > /dev/null || true

.kernels: $(VENV)/.test
	$(BIN)/python -c "from holdfast.fleet.simulation.engine import warm_up; warm_up()"

.site:
	$(BIN)/zensical build --clean --strict

lint: $(VENV)/.test ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports
	$(BIN)/python tools/weigh.py --over

# The scripts say themselves what they need; those of a study of days resume.
bench: $(VENV)/.peers .jpeg ## side-by-side benchmarks, all or ROOM=carbon; rewrites docs/benchmarks.md
	$(BIN)/python benchmarks/run_all.py $(ROOM)
	$(BIN)/python benchmarks/render.py

docs: $(VENV)/.docs ## build the documentation into site/
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/croissant_rules.py
	$(BIN)/python benchmarks/render.py
	$(BIN)/zensical build --clean --strict

release: $(VENV)/.test ## source distribution and wheel in dist/, each checked in a fresh environment
	$(BIN)/python tools/release.py

flower: $(FLOWER)/.installed ## the environment of the Flower app, .venv-flower

clean: ## remove what the other targets made
	rm -rf $(VENV) $(FLOWER) $(CLIENTS) dist out site

# A stamp says which groups of packages the environment holds; a change of the lists renews it.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "holdfast needs Python 3.11 or later; say which: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[runs]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[all,audio,bench,dicom,hf,images,polars,torch]' --group test --group docs
	touch $(VENV)/.core $@

$(VENV)/.docs: $(VENV)/.test
	touch $@

$(VENV)/.peers: $(VENV)/.test
	$(INSTALL) -e '.[all,audio,bench,hf,images,peers,polars,torch]'
	touch $@

$(VENV)/.full: $(VENV)/.test
	$(INSTALL) -e '.[all,audio,bench,dicom,hf,images,polars,ray,spark,torch]'
	touch $@

$(FLOWER)/.installed: pyproject.toml $(FLOWER_APP)/requirements.txt $(FLOWER_APP)/constraints.txt
	$(PYTHON) -m venv $(FLOWER)
	CONSTRAINTS=$(FLOWER_APP)/constraints.txt tools/install.sh $(FLOWER) -e '.[federated]' -r $(FLOWER_APP)/requirements.txt
	touch $@

$(CLIENTS)/.installed:
	$(PYTHON) -m venv $(CLIENTS)
	CONSTRAINTS=/dev/null tools/install.sh $(CLIENTS) vosk==0.3.45 'openai>=3,<4'
	touch $@

# Spark needs Java, the console's browser tests need Chromium, writing records needs libjpeg-turbo (its
# programs are the tests' oracle); without them, and without the right to install them, those tests are skipped.
.PHONY: .debian .java .chromium .jpeg
.debian:  # one after the other: apt-get holds a lock
	MAKEFLAGS= $(MAKE) --no-print-directory .chromium .jpeg

.java:
	@command -v java > /dev/null || $(call apt,openjdk-17-jre-headless,the Spark tests)

.chromium:
	@command -v chromium > /dev/null || $(call apt,chromium,the console's browser tests)

.jpeg:
	@command -v jpegtran > /dev/null && ldconfig -p | grep -q libturbojpeg.so.0 \
	  || $(call apt,libturbojpeg0 libjpeg-turbo-progs,the tests that write records)

define apt
{ if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $(1) < /dev/null > /dev/null; \
  else echo "$(1) is missing: install it to run $(2)"; fi; }
endef
