# `make demo` runs the main job, `make check` checks what is fast to check, `make test` everything. All set up what
# they need.
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
PYTEST := -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 40

.PHONY: demo check test exhaustive compose-test coverage mutation fault-table random-faults memory-runs site lint format bench \
	images clean

demo: $(VENV)/installed
	@set -e; $(foreach each,$(ARCHITECTURES),echo "slslab run $(each)"; \
	$(BIN)/slslab run $(each) $(DEMO) $(DEMO_$(each)) > /dev/null;) \
	$(BIN)/slslab compare last~4 last~3 last~2 last~1 last --html runs/demo.html

# The loop to live in: style, types, contracts, and all tests that need no server.
check: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q -m "not server"

# RECORD=--record-durations writes how long each file takes, by which the files are ordered.
test: lint $(VENV)/redis7 $(VENV)/byzfl
	$(BIN)/python $(PYTEST) $(RECORD)

# Hours of real runs, whose other cases `make test` has: every architecture in a cluster, in containers and exported, many
# workers, lost heads, each setting of a user's alone.
exhaustive: $(VENV)/installed-dev
	SLSLAB_CLUSTER=required $(BIN)/python -m pytest --exhaustive

# What runs in containers alone: environments, images, and whole stacks that are brought up and taken down. `make test`
# has it, too, and skips it where no engine answers or no images are built.
compose-test: $(VENV)/installed-dev images
	SLSLAB_CONTAINERS=required $(BIN)/pytest tests/machines/docker tests/machines/compose

# The whole suite, measured in every process; fails if fewer than 90 % of the lines or of the branches are reached.
coverage: $(VENV)/installed-dev $(VENV)/redis7 $(VENV)/byzfl
	rm -rf .coverage && mkdir .coverage
	$(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	$(BIN)/coverage json --quiet -o .coverage/table.json
	$(BIN)/python -c 'import json, sys; totals = json.load(open(".coverage/table.json"))["totals"]; \
	reached = {kind: totals[f"percent_{kind}_covered"] for kind in ("statements", "branches")}; \
	print(reached); sys.exit(min(reached.values()) < 90)'

# Do the tests of billing, limits, metering, aggregation and check notice errors put into these? Tests the modules that
# changed, or those of MODULE="NAME …", and writes docs/mutation.md.
mutation: $(VENV)/installed-mutation
	$(BIN)/python tests/mutation.py $(MODULE)

# What becomes of each fault in each phase of each system: makes the runs that results/faults.json does not have.
fault-table: $(VENV)/installed-dev
	$(BIN)/python -m tests.fault_table

# Real runs with random faults, those that results/random-faults.json does not have; may be interrupted, and goes on.
random-faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.random_faults

# Thousands of such runs in memory, under a virtual clock: those that results/memory-runs.json does not have.
memory-runs: $(VENV)/installed-dev
	$(BIN)/python -m tests.memory_runs

# The documentation as pages: open site/index.html.
site: $(VENV)/installed-dev
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

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable '.[report,train]'
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) --editable '.[aws,dev,report,train]'
	touch $@

# The client's major version before ours, apart from it: for the tests of the tensor database.
$(VENV)/redis7: Makefile | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ redis==7.4.1
	touch $@

# EPFL's Byzantine rules and attacks (MIT), apart from what is installed: the oracle of the tests of ours.
$(VENV)/byzfl: Makefile | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ byzfl==0.0.11
	touch $@

$(VENV)/installed-mutation: $(VENV)/installed-dev
	$(PIP) --editable '.[dev,mutation,report,train]'
	touch $@
