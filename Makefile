# Everything a developer runs. A fresh machine needs git, make and Python >= 3.11 with venv, nothing else.
#   make demo PYTHON=/path/to/python    choose another Python
SHELL := /bin/sh
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$candidate; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# named after the lock's content: another time of change alone rebuilds nothing
READY := $(VENV)/.ready-$(shell cksum < requirements.lock | tr ' ' '-')
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo compose-demo up test simulate simulate-order chaos amounts fold races requests rescues streams vectors outbox outbox-nightly nightly nightly-properties bench bench-replay bench-rebuild fairness spike check format lock clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## See the whole path of three documents on real Kafka and PostgreSQL
	@$(BIN)/offsetzero demo $(ARGS)

compose-demo: $(READY) ## Build the image, bring docker-compose.yml up, run the demo against it, take it down
	@$(BIN)/python deploy/compose_demo.py

up: $(READY) ## Run everything on this machine until Ctrl-C
	@$(BIN)/offsetzero up $(ARGS)

# With byte code, whatever the machine's habit is: hundreds of processes are started, and test files are rewritten.
test: $(READY) ## Run all tests, four at once (ARGS='-k name' for some, ARGS=--servers=embedded without Docker)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

.PHONY: times
nightly: times
times: $(READY) ## See that what has to be within seconds is, where nothing else is at work, some minutes
	@OZ_TEST_TIMES=1 $(BIN)/python -m pytest -m timed --servers=embedded -v -s $(ARGS)

chaos: $(READY) ## Kill members, broker and database by the dozen under load, half an hour (ARGS='-k name' for some)
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest tests/chaos tests/kafka/test_group_assignment.py tests/kafka/test_group_crashes.py tests/kafka/test_group_frozen_database.py tests/kafka/test_group_order.py tests/kafka/test_group_refusals.py tests/kafka/test_group_transactional.py tests/kafka/test_scheduler.py tests/e2e/test_correctness.py --servers=embedded --timeout=0 -v $(ARGS)

outbox: EVENTS ?= 200000
outbox: $(READY) ## Have 16 writers write EVENTS (200,000) while relays are killed 50 times, and look for what is lost
	@OZ_TEST_OUTBOX_EVENTS=$(EVENTS) $(BIN)/python -m pytest tests/kafka/test_relay_proof.py --servers=embedded \
		--timeout=0 -v -s $(ARGS)

outbox-nightly:
	@$(MAKE) --no-print-directory outbox EVENTS=1000000

nightly: nightly-properties simulate simulate-order chaos amounts fold races requests rescues streams vectors outbox-nightly ## All that takes too long for every change

amounts: $(READY) ## Redrive 100,000 dead letters at a set rate, list a million, start with a million that wait, some minutes
	@OZ_TEST_AMOUNTS=1 $(BIN)/python -m pytest tests/kafka/test_dlq_amounts.py tests/kafka/test_group_order.py \
		-k "amounts or ready_soon" --servers=embedded -v -s $(ARGS)

fold: EVENTS ?= 1000000
fold: $(READY) ## Rebuild a projection of EVENTS (1,000,000) with live traffic, and compare it with the fold of the log
	@OZ_TEST_PROFILE=nightly OZ_TEST_REBUILD_EVENTS=$(EVENTS) $(BIN)/python -m pytest tests/kafka/folding \
		--servers=embedded -v -s $(ARGS)

races: $(READY) ## Cancel 10,000 runs in the moment in which they end, some minutes
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest tests/e2e/test_store_cancel.py --servers=embedded --timeout=0 -v $(ARGS)

rescues: $(READY) ## Kill processes of steps at every boundary, freeze them, have them work for long, some minutes
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest tests/kafka/test_step_rescues.py --servers=embedded --timeout=0 -v -s $(ARGS)

requests: SECONDS ?= 600
requests: $(READY) ## Send the API whatever its OpenAPI document allows or forbids, for SECONDS (600)
	@OZ_TEST_REQUESTS_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/e2e/test_api_schemathesis.py --servers=embedded \
		--timeout=0 -v -s $(ARGS)

streams: $(READY) ## Have 1,000 clients follow runs, break off at random and come again; lose one without a word
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest tests/e2e/test_api_events.py -k "random or gone" --servers=embedded -v -s $(ARGS)

vectors: $(READY) ## Change the model of vectors as operators do, with all processes, a minute
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest tests/e2e/test_rebuild_model.py --servers=embedded -v $(ARGS)

nightly-properties: $(READY) ## Search longer for what breaks the pure cores: 10,000 examples of each property
	@OZ_TEST_PROFILE=nightly $(BIN)/python -m pytest -n 2 --timeout=0 tests/unit -m hypothesis $(ARGS)

bench: $(READY) ## Measure the runtime beside other ways of consuming (ARGS='--rows noop --scale 0.2' for a quick look)
	@$(BIN)/python benchmarks/runtime $(ARGS)

bench-replay: EVENTS ?= 10000000
bench-replay: $(READY) ## Read a log of EVENTS (10,000,000) from offset zero and watch the memory
	@$(BIN)/python benchmarks/runtime --rows replay --events $(EVENTS) $(ARGS)

bench-rebuild: EVENTS ?= 10000000
bench-rebuild: $(READY) ## Fill a generation of the catalogue from EVENTS (10,000,000), and watch its pace and memory
	@$(BIN)/python benchmarks/runtime --rows growth --events $(EVENTS) $(ARGS)

fairness: DOCUMENTS ?= 100000
fairness: $(READY) ## Have a tenant queue DOCUMENTS (100,000), and see how long those of another one wait, some minutes
	@$(BIN)/python benchmarks/intake/fairness.py --documents $(DOCUMENTS) $(ARGS)

spike: $(READY) ## Upload 3,000 documents in 10 s while the workers go on: how long answers take, second by second
	@$(BIN)/python benchmarks/intake/spike.py $(ARGS)

SEEDS ?= 1000
SEED ?=
simulate: $(READY) ## Drive the consumer runtime through seeded faults (SEEDS=1000 of them, or SEED=123 to see one)
	@PYTHONPATH=tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

simulate-order: EVENTS ?= 1000000
simulate-order: $(READY) ## Have a tenth of 1,000 keys fail in EVENTS=1000000 simulated events, and look at the order of each
	@PYTHONPATH=tests $(BIN)/python -m simulation --order $(EVENTS) $(ARGS)

check: $(READY) ## Lint, formatting, types, the arrows between rooms, the contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@said=$$($(BIN)/lint-imports 2>&1) || { printf '%s\n' "$$said"; exit 1; }
	@$(BIN)/offsetzero schema check

format: $(READY) ## Format the code and repair what ruff can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

# The locks of Python packages hold for every Python >= 3.11; the lock of Kafka's jars is checked at each start. The
# image installs requirements.prod.lock: those of the same pins that production needs, without `embedded` and `dev`.
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-find-links -q
lock: $(READY) ## Choose versions anew: requirements.lock, requirements.prod.lock and kafka.lock
	@$(COMPILE) --all-extras --upgrade -o requirements.lock
	@$(COMPILE) --extra documents -c requirements.lock -o requirements.prod.lock
	@$(BIN)/python -m offsetzero.embedded.lock

clean: ## Remove the environment and caches of this folder
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# lxml has dropped an extra that another package still names; pip warns of it, and installs what is needed.
define install
@{ $(BIN)/python -m pip install -q $(1) 2>&1; echo $$? > $(VENV)/.status; } | grep -v 'does not provide the extra' >&2; \
	if [ "$$(cat $(VENV)/.status)" != 0 ]; then \
		echo "make: the packages were not installed. They come from PyPI; without a way to it, name a proxy (HTTPS_PROXY)," >&2; \
		echo "make: a mirror (PIP_INDEX_URL) or a folder of wheels (PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR), and run make again." >&2; \
		exit 1; fi
endef

# The lock with its checksums, then this package without more. setuptools comes first, because two packages come as
# source only and are built with this one, not with whatever is newest. When the lock changes, what is there of the same
# Python gets what has changed, in seconds; what the lock has no more stays until `make clean`.
$(READY):
	@if [ -z "$(PYTHON)" ]; then \
		echo "make: offsetzero needs Python 3.11 or newer; install one, or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; fi
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "make: $(PYTHON) is no Python 3.11 or newer; name another: make PYTHON=/path/to/python" >&2; exit 1; fi
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
		echo "make: $(PYTHON) has no module venv (on Debian: apt install python3-venv)" >&2; exit 1; fi
	@echo "Installing the packages of requirements.lock into $(VENV) (once; again when the lock changes) …"
	@is=$$($(PYTHON) -c 'import sys; print(sys.version)'); \
	if ls $(VENV)/.ready-* > /dev/null 2>&1 && [ "$$($(BIN)/python -c 'import sys; print(sys.version)')" = "$$is" ]; \
	then rm -f $(VENV)/.ready-*; else rm -rf $(VENV) && $(PYTHON) -m venv $(VENV); fi
	@awk '/^setuptools==/,!/\\$$/' requirements.lock > $(VENV)/build.lock
	$(call install,--require-hashes -r $(VENV)/build.lock)
	$(call install,--require-hashes --no-build-isolation --use-pep517 -r requirements.lock)
	$(call install,--no-deps --no-build-isolation -e .)
	@touch $@
