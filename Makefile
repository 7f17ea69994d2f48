# Everything a person needs is one word. Only Python 3.11 or newer and make have to be there.
.DEFAULT_GOAL := help
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(p))))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

help: ## this list
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | expand -t 16

$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Kedge needs Python 3.11 or newer; name one with make PYTHON=..."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,java,s3,redis,resume,plot,bench,dev]'
	@touch $@

venv: $(STAMP) ## create .venv with the exact versions of constraints.txt

demo: $(STAMP) ## a pipeline dies half-way and goes on: about two minutes
	$(BIN)/kedge demo

check: $(STAMP) ## ruff, pyright and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fast: $(STAMP) ## the tests that take under a minute
	KEDGE_LANE=fast $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not soak"

test: check ## what CI runs: under 15 minutes
	KEDGE_LANE=test $(BIN)/python -m pytest -n 2 --dist loadfile -m "not soak"

soak: $(STAMP) ## the long lane: hundreds of kills, thousands of seeds
	KEDGE_LANE=soak $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 7200

sim: $(STAMP) ## replay one simulated crash: make sim SEED=17
	$(BIN)/kedge sim --seed $(or $(SEED),0)

bench-%: $(STAMP) ## a benchmark: make bench-spine
	$(BIN)/kedge bench $*

clean: ## remove what tests and demos left behind
	rm -rf demo-out bench-out .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse

.PHONY: help venv demo check fast test soak sim clean
