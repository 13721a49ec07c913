# Every verb of the project. `make demo` and `make test` need only Python 3.11 or newer and make.
.DEFAULT_GOAL := help
.PHONY: help demo test check fix bench fuzz recount docs lock clean run-environment dev-environment browser

BIN := .venv/bin
JOBS ?= 2
FUZZ_SECONDS ?= 300
DATA ?= ../shared/data/traces
NO_DASHBOARD ?=
export PYTHON

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: run-environment ## sample traces in, diagnosis and policy comparison out, dashboard up (NO_DASHBOARD=1: without)
	@$(BIN)/analyzer demo $(if $(filter-out 0,$(NO_DASHBOARD)),--no-dashboard)

test: dev-environment browser check ## format, lint, types, then every test (JOBS=2 processes, ARGS for pytest)
	@$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: dev-environment ## format, lint and types only
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fix: dev-environment ## format, and mend what the linter can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: dev-environment ## run the benchmarks; they print ratios and never fail a build
	@set -e; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

fuzz: dev-environment ## spoil recordings of every source and read them (FUZZ_SECONDS=300, ARGS="--data DIR" for real ones)
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

recount: dev-environment ## count the files of the data set a second way and compare (DATA=../shared/data/traces)
	@$(BIN)/python -m tests.recount $(DATA)

docs: dev-environment ## write docs/cli.md from the commands' own help
	@$(BIN)/python scripts/cli_reference.py

lock: ## write the locks anew from pyproject.toml (needs uv; UPGRADE=1: newest versions)
	@sh scripts/lock.sh

clean: ## remove the environment, the demo's store and every cache
	@rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

run-environment:
	@sh scripts/environment.sh run

dev-environment:
	@sh scripts/environment.sh dev

browser:
	@sh scripts/browser.sh
