# Everything a newcomer needs; each target does its own set-up. `make help` lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.complete
WORKERS ?= 3 # Of pytest, on two cores: many tests wait for other processes.

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long mutants check format spec bench docs notebooks lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

setup: $(STAMP) ## Install everything into .venv (quick when it is there)

run: $(STAMP) ## Watch a network at work: clients roam, a broker is killed, nothing is lost
	@$(BIN)/sterna demo

test: $(STAMP) archive node ## Run all tests (about 15 minutes on two cores)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-long: $(STAMP) archive node ## Try 20 times as many examples, new ones each time
	@STERNA_CAMPAIGN=20 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

mutants: $(STAMP) ## Plant known bugs in a copy and see whether the tests find them (an hour on two cores)
	@$(BIN)/python -m tests.mutants.run

check: $(STAMP) ## Format, lint, types, and the tidiness of the tree
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_tidy.py
	@$(BIN)/python -m tests.spec.conformance --check

format: $(STAMP) ## Format the code and fix what can be fixed
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

spec: $(STAMP) ## Print which tests prove which requirement; write docs/conformance.md
	@$(BIN)/python -m tests.spec.conformance

bench: $(STAMP) ## Measure, with ratios against baselines in the same run (some minutes)
	@$(BIN)/python -m benchmarks.filters
	@$(BIN)/sterna bench match

docs: $(STAMP) ## Write the generated pages and build the site: build/site/index.html
	@$(BIN)/python -m tests.spec.conformance >/dev/null
	@$(BIN)/python -m tests.mqtt.conformance >/dev/null
	@$(BIN)/typer sterna.cli.main utils docs --name sterna --output docs/reference/cli.md
	@$(BIN)/python -m sterna.net.config_reference >docs/reference/configuration.md
	@$(BIN)/python -m sterna.journal.reference docs/reference/journal.md
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo "build/site/index.html"

notebooks: $(STAMP) java ## Run the notebooks of docs/tutorial and store their output in them
	@$(BIN)/python -m tests.notebooks

lock: ## Resolve requirements.lock anew from pyproject.toml
	@scripts/lock $(PYTHON)

clean: ## Remove everything that set-up and tests made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build spark-warehouse src/*.egg-info \
		examples/browser/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: java archive node
java:
	@scripts/ensure-java

node:
	@scripts/ensure-node-packages

archive: $(STAMP) java
	@$(BIN)/python -m tests.java

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it or set PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11; set PYTHON=… to a newer one"; exit 1; }
	@echo "Setting up .venv (about two minutes the first time; Spark is large) …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'from sterna.matching.compilation import compile_kernels as c; c()'
	@touch $@
