# Everything a contributor does, by name. The first use makes a virtual environment and fills it.

PYTHON ?= python3
PY := .venv/bin/python
BENCH_PY := .bench-venv/bin/python
PIP := -m pip install --quiet --quiet --disable-pip-version-check
# Python keeps what it compiled, even where the environment forbids it: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
# Files of tests side by side, as they come: half of them compute, the other half wait for servers and processes.
SIDE_BY_SIDE := -n $(or $(PROCESSES),3) --dist loadfile --no-loadscope-reorder

# The first of the simulated worlds that the tests live through. In CI it follows from the code: every change sees other
# worlds, and a run of it can be repeated anywhere.
CODE_NUMBER = $(shell find src tests -name '*.py' | LC_ALL=C sort | xargs cat | cksum | cut -d ' ' -f 1)
FIRST_WORLD := $(or $(FIRST_WORLD),$(if $(CI),$(shell expr $(CODE_NUMBER) % 100000),1))

UNIT := tests/unit src/holdfast/core

.DEFAULT_GOAL := help
.PHONY: help demo test quiet-checks server-tests unit check lint types conformance sim crashpoints sim-selfcheck chaos outage rates replay relay-chaos fleet-chaos model coverage mutants bench docs format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: .venv/.ready ## Watch a thousand jobs survive a bad minute; exits 0 when every promise held
	@$(PY) -m demo

# Types and unit tests (once, with coverage) use the time in which the other tests wait: those come first, since some of
# them measure time. What takes seconds is checked before all that.
test: .venv/.ready ## Run everything: checks, all tests with real servers, then the table of guarantees
	@$(MAKE) --no-print-directory lint
	@rm -f build/clauses.json build/unit-clauses.json; failed=0; \
		$(MAKE) --no-print-directory --jobs 2 --keep-going quiet-checks server-tests || failed=1; \
		$(PY) -m tools.conformance --run build/clauses.json build/unit-clauses.json || failed=1; exit $$failed

quiet-checks: .venv/.ready ## Check types and coverage at low priority, and print the outcome at the end
	@mkdir -p build; nice $(MAKE) --no-print-directory types coverage > build/quiet-checks.log 2>&1; \
		code=$$?; echo; cat build/quiet-checks.log; exit $$code

server-tests: .venv/.ready ## Run all tests but the unit tests, with real servers
	@echo "All tests, with simulated worlds from number $(FIRST_WORLD) on (FIRST_WORLD=$(FIRST_WORLD) repeats them) ..."
	@HOLDFAST_SIM_FIRST=$(FIRST_WORLD) $(PY) -m pytest $(SIDE_BY_SIDE) $(UNIT:%=--ignore=%)

unit: .venv/.ready ## Run the tests that need no server; takes seconds
	@$(PY) -m pytest tests/unit

check: lint types ## Check format, lint, types and the direction of imports

lint: .venv/.ready ## Check format, lint and the direction of imports; takes seconds
	@echo "Format ..." && $(PY) -m ruff format --check --quiet . || { echo "Run 'make format'."; exit 1; }
	@echo "Lint ..." && $(PY) -m ruff check --quiet .
	@echo "Imports ..." && { out=$$(.venv/bin/lint-imports 2>&1) || { echo "$$out"; exit 1; }; }

types: .venv/.ready ## Check types
	@echo "Types ..." && $(PY) -m mypy --no-error-summary

conformance: .venv/.ready ## Run the tests that show a guarantee, and print which guarantees hold
	@rm -f build/clauses.json; failed=0; $(PY) -m pytest -q -m clause $(SIDE_BY_SIDE) || failed=1; $(PY) -m tools.conformance || failed=1; exit $$failed

sim: .venv/.ready ## Live through SEEDS=200 simulated worlds full of faults; SEED=17 replays one, with its trace
	@$(PY) -m tests.simulation $(if $(SEED),--seed $(SEED) --trace,--seeds $(or $(SEEDS),200))

crashpoints: .venv/.ready ## Crash, pause, fail and cancel at every call to the outside, and recover from each
	@$(PY) -m tests.crashpoints

sim-selfcheck: .venv/.ready ## Plant protocol bugs one by one, and show that each is found
	@$(PY) -m tests.planted
	@HOLDFAST_SAME_LIFE=10 $(PY) -m pytest -q tests/planted -k same_each_time

chaos: .venv/.ready ## Kill, pause and cut off real processes for MINUTES=5, on STORE=postgres or sqlite
	@$(PY) -m tests.acceptance.harness.chaos --minutes $(or $(MINUTES),5) --store $(or $(STORE),postgres)

outage: .venv/.ready ## Break a provider for 150 s with 10,000 jobs waiting, on STORE=postgres or sqlite
	@$(PY) -m tests.acceptance.harness.outage --store $(or $(STORE),postgres)

rates: .venv/.ready ## Call 50 times a second from four processes and kill one, on STORE=postgres or sqlite
	@$(PY) -m tests.acceptance.harness.rates --store $(or $(STORE),postgres)

replay: .venv/.ready ## Replay LETTERS=10000 dead letters in bulk while workers are killed, on STORE=postgres or sqlite
	@$(PY) -m tests.acceptance.harness.replays --store $(or $(STORE),postgres) --letters $(or $(LETTERS),10000)

relay-chaos: .venv/.ready ## Relay and consume MESSAGES=20000 messages while relays and workers are killed and RabbitMQ restarts
	@$(PY) -m tests.acceptance.harness.relay_chaos --messages $(or $(MESSAGES),20000)

fleet-chaos: .venv/.ready ## Run JOBS=5000 jobs on arq and Celery workers that are killed, on STORE=postgres or sqlite
	@$(PY) -m tests.acceptance.harness.fleet_chaos --store $(or $(STORE),postgres) --jobs $(or $(JOBS),5000)

model: .venv/.ready ## Check the model of leases and effects in every reachable state
	@$(PY) -m model

coverage: .venv/.ready ## Show that the unit tests reach every branch of the core
	@echo "Coverage of the core ..." && $(PY) -m coverage erase && $(PY) -m coverage run -m pytest -q -n 2 --dist worksteal --clauses build/unit-clauses.json $(UNIT) \
		&& $(PY) -m coverage combine -q && $(PY) -m coverage report

mutants: .mutants-venv/.ready ## Change the core in every small way, and count the changes that no test notices
	@.mutants-venv/bin/python -m tools.mutants

bench: .bench-venv/.ready ## Measure Holdfast beside its peers, in an environment of their own
	@$(BENCH_PY) -m bench

docs: .venv/.docs-ready ## Build the documentation into site/; a broken link is an error
	@$(PY) -m mkdocs build --strict --quiet && echo "Open site/index.html"

format: .venv/.ready ## Format the code, and repair what lint can repair
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

clean: ## Remove what was built; the virtual environments stay
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	@find src tests tools demo bench model examples -type d -name __pycache__ -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml
	@$(call make_venv,.venv)
	@echo "Installing Holdfast and its tools into .venv ..."
	@$(PY) $(PIP) --editable ".[dev]"
	@touch $@

.venv/.docs-ready: .venv/.ready
	@echo "Installing what the documentation needs into .venv ..."
	@$(PY) $(PIP) --editable ".[docs]"
	@touch $@

.mutants-venv/.ready: tools/mutants-requirements.txt pyproject.toml
	@$(call make_venv,.mutants-venv)
	@echo "Installing Holdfast and mutmut into .mutants-venv ..."
	@.mutants-venv/bin/python $(PIP) --requirement tools/mutants-requirements.txt
	@touch $@

.bench-venv/.ready: bench/requirements.txt pyproject.toml
	@$(call make_venv,.bench-venv)
	@echo "Installing Holdfast and its peers into .bench-venv ..."
	@$(BENCH_PY) $(PIP) --requirement bench/requirements.txt
	@touch $@

# Debian ships Python without the part that fills a virtual environment: root can fetch it, others are told.
define make_venv
test -x $(1)/bin/python || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "Holdfast needs Python 3.11 or newer. Say which: make PYTHON=python3.11 ..."; exit 1; }; \
	echo "Making $(1) ..."; \
	$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { test "$$(id -u)" = 0 && { apt-get update && apt-get install -y python3-venv; } >/dev/null 2>&1; } \
		|| { echo "Python's venv module is incomplete. On Debian: apt-get install python3-venv"; exit 1; }; \
	$(PYTHON) -m venv $(1); \
}
endef
