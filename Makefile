# Everything runs in .venv, made by the first target that needs it: Python 3.11+, pip and make are enough.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
PYTEST = $(BIN)/python -m pytest
# Airflow and Dagster both take over warnings, logging and signals: each suite has a process of its own.
HOSTED = tests/dagster tests/airflow

.DEFAULT_GOAL := help
.PHONY: help setup servers demo test test-slow check lint types contracts bench clean

help:  ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with everything the demo and the tests need (a minute or two, once)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,dagster,airflow,ray,plot,dev]'
	@touch $@

servers:  ## Install the real servers that slower tests start: Slurm (as root, on Debian)
	tests/servers/install.sh slurm

demo: $(READY)  ## Train, evaluate and promote through Dagster and Airflow at once, on one emulated fleet
	@PYTHONPATH=examples $(BIN)/python -m posttrain.demo

test: $(READY)  ## Run the test suite (under 15 minutes on 2 cores)
	$(PYTEST) -q -m "not slow" $(foreach dir,$(HOSTED),--ignore=$(dir)) tests
	@for dir in $(HOSTED); do echo "$(PYTEST) -q -m 'not slow' $$dir"; $(PYTEST) -q -m "not slow" $$dir || exit 1; done

test-slow: $(READY)  ## Run the slower tests
	@for dir in tests/*/; do ls $$dir*.py >/dev/null 2>&1 || continue; \
	  $(PYTEST) -q -m slow $$dir; code=$$?; [ $$code = 0 ] || [ $$code = 5 ] || exit $$code; done

lint: $(READY)
	$(BIN)/ruff check core dagster_plugin airflow_provider examples tests
	$(BIN)/deptry core dagster_plugin airflow_provider

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

check: lint types contracts test  ## Lint, types, import contracts and tests: what a change must pass

bench: $(READY)  ## Print the speed table: ratios within one run, medians of interleaved runs
	@$(BIN)/python tests/bench

clean:  ## Remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .demo
