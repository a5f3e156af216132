# Borzoi: `make help` lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup up test unit lint bench clean

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Borzoi needs Python 3.11 or later; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q src
	touch $@

setup: $(STAMP) ## Create .venv with Borzoi and the development tools

up: $(STAMP) ## Run the platform (set up first if needed)
	@echo "Try next, in another terminal:"
	@echo "  $(BIN)/borzoi stream create orders && $(BIN)/borzoi topic create orders events"
	@echo "  $(BIN)/borzoi message send orders events hello && $(BIN)/borzoi message poll orders events 0 --first"
	@echo "  $(BIN)/borzoi config show --origin           # every setting and where it comes from"
	@echo "  python3 -m pip install apache-iggy==0.9.0    # the official clients work unchanged:"
	@echo "  iggy://iggy:iggy@127.0.0.1:8090              # their connection string"
	@exec $(BIN)/borzoi server

# Spark in a process of its own: it takes over signals and keeps a JVM until the end.
test: lint ## Lint, type-check and run every test
	$(BIN)/python -m pytest --ignore=tests/spark
	$(BIN)/python -m pytest tests/spark

unit: $(STAMP) ## Only the fast tests
	$(BIN)/python -m pytest tests/unit

lint: $(STAMP) ## ruff, mypy, pyright, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --verbose | tail -n 12

bench: $(STAMP) ## Measure the hot path against a bare server
	$(BIN)/python benchmarks/broker_hot_path.py

clean: ## Remove environments and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
