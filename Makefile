# `make demo` runs the main job. Three commands test, by what can go wrong: `make check` after every change, `make test`
# before a proposal, `make machines` for engines, virtual machines, clusters and packages. All set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Each trains until it has learnt as much: SPIRT updates once an epoch, and MLLess sends what is significant.
DEMO := --model lenet --dataset digits --workers 4 --lr 0.05 --until-accuracy 0.8 --epochs 80
DEMO_mlless := --threshold 0.2
DEMO_spirt := --batches 1 --update-rule sgd-momentum --lr 0.2 --light-memory 1024
ARCHITECTURES := allreduce scatterreduce mlless spirt gpu
# Where Python may not keep compiled code, each of the many processes that tests start compiles the project again.
unexport PYTHONDONTWRITEBYTECODE
# Much of the tests is waiting: whole files of them in several processes, in the order that tests/durations.json gives.
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder --durations 40
TESTS := $(PYTEST) -n 4 --ignore tests/machines
# These measure time or take all processors, so they have the host to themselves.
ALONE := tests/machines/host tests/machines/guest
HOST := $(PYTEST) $(ALONE)
MACHINES := $(PYTEST) -n 4 tests/machines $(ALONE:%=--ignore %)

.PHONY: demo check test machines exhaustive coverage mutation same fault-table random-faults memory-runs site lint format \
	bench images clean

demo: $(VENV)/installed
	@set -e; $(foreach each,$(ARCHITECTURES),echo "slslab run $(each)"; \
	$(BIN)/slslab run $(each) $(DEMO) $(DEMO_$(each)) > /dev/null;) \
	$(BIN)/slslab compare last~4 last~3 last~2 last~1 last --html runs/demo.html

# The loop to live in: style, types, contracts, and all tests that need no server and are quick.
check: lint
	$(BIN)/python $(PYTEST) -n 2 -q -m "not server and not slow"

# All tests that need no container engine, virtual machine, browser or cluster; servers run as processes.
# RECORD=--record-durations writes how long each file takes, by which the files are ordered.
test: lint $(VENV)/redis7 $(VENV)/byzfl
	$(BIN)/python $(TESTS) $(RECORD)

# Containers, compose, a virtual machine, browsers, a cluster, packages, and tests that need the host to themselves.
# Tests that lack something are skipped and say what it is.
machines: $(VENV)/installed-dev
	@if docker info > /dev/null 2>&1; then \
	$(BIN)/python images/build || echo "The images can't be built; tests of containers need them."; \
	else echo "No container engine answers, so tests of containers are skipped. images/install-engine starts one."; fi
	$(BIN)/python $(HOST) $(RECORD); failed=$$?; $(BIN)/python $(MACHINES) $(RECORD) && exit $$failed

# Hours of real runs, whose other cases `make test` and `make machines` have: every architecture in a cluster, in
# containers and exported, many workers, lost heads, each setting of a user's alone.
exhaustive: $(VENV)/installed-dev
	SLSLAB_CLUSTER=required $(BIN)/python -m pytest --exhaustive

# `make test` and `make machines`, measured in every process; fails if fewer than 90 % of the lines or of the branches
# are reached.
coverage: $(VENV)/installed-dev $(VENV)/redis7 $(VENV)/byzfl
	rm -rf .coverage && mkdir .coverage
	$(BIN)/coverage run $(TESTS)
	$(BIN)/coverage run $(HOST)
	$(BIN)/coverage run $(MACHINES)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/coverage json --quiet -o .coverage/table.json
	$(BIN)/python -c 'import json, sys; totals = json.load(open(".coverage/table.json"))["totals"]; \
	reached = {kind: totals[f"percent_{kind}_covered"] for kind in ("statements", "branches")}; \
	print(reached); sys.exit(min(reached.values()) < 90)'

# Do the tests of billing, limits, metering, aggregation and check notice errors put into these? Tests the modules that
# changed, or those of MODULE="NAME …", and writes results/mutation.md.
mutation: $(VENV)/installed-mutation
	$(BIN)/python tests/mutation.py $(MODULE)

# Does a change leave what users see alone? Help, documents, pages, tables, and runs of all architectures to the last bit,
# of this checkout and of a commit: `make same BASE=main`. It takes about ten minutes on two cores.
same: $(VENV)/installed-dev
	$(BIN)/python -m tests.same.record --base $(or $(BASE),HEAD~1)

# What becomes of each fault in each phase of each system: makes the runs that results/faults.json does not have.
fault-table: $(VENV)/installed-dev
	$(BIN)/python -m tests.fault_table

# Real runs with random faults, those that results/random-faults.json does not have; may be interrupted, and goes on.
random-faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.random_faults

# Thousands of such runs in memory, under a virtual clock: those that results/memory-runs.json does not have.
memory-runs: $(VENV)/installed-dev
	$(BIN)/python -m tests.memory_runs

# The documentation as pages: open site/index.html. Five of them are made from data alone, and are in no commit.
site: $(VENV)/installed-dev
	$(BIN)/python -m docs.build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/invoke.py --quick
	$(BIN)/python benchmarks/object_store.py --quick
	$(BIN)/python benchmarks/channels.py --repeat 10
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/in_database.py --model mobilenet --repeat 3
	$(BIN)/python benchmarks/environments.py --quick
	$(BIN)/python benchmarks/plugin.py --quick
	$(BIN)/python benchmarks/replay.py --quick
	$(BIN)/python benchmarks/sweeps.py --pairs 1

# Everything of the compose stack, with no image registry; only what has changed is built again.
images: $(VENV)/bin/python
	$(BIN)/python images/build

clean:
	rm -rf $(VENV) site .coverage .mutation .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The setup prints one line per step, since pip is silent for minutes.
$(VENV)/bin/python:
	@echo "Making the virtual environment $(VENV) (about 5 seconds) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing slslab, what training needs (PyTorch) and what reports need (2 to 5 minutes the first time) ..."
	@$(PIP) --editable '.[report,train]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "Installing what development needs: linters, type checkers, test tools (1 to 3 minutes the first time) ..."
	@$(PIP) --editable '.[aws,dev,report,train]'
	@touch $@

# The client's major version before ours, apart from it: for the tests of the tensor database.
$(VENV)/redis7: Makefile | $(VENV)/bin/python
	@echo "Installing redis-py 7 into $@, for tests of the tensor database (about 5 seconds) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ redis==7.4.1
	@touch $@

# EPFL's Byzantine rules and attacks (MIT), apart from what is installed: the oracle of the tests of ours.
$(VENV)/byzfl: Makefile | $(VENV)/bin/python
	@echo "Installing byzfl into $@, for tests of Byzantine rules (about 5 seconds) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ byzfl==0.0.11
	@touch $@

$(VENV)/installed-mutation: $(VENV)/installed-dev
	@echo "Installing mutmut, which tests the tests (about 30 seconds the first time) ..."
	@$(PIP) --editable '.[dev,mutation,report,train]'
	@touch $@
