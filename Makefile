# One word per job; on a fresh machine each makes its own environment first.
# Needed beforehand: make, and Python 3.11 or newer with its venv module.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Bytecode is kept, also where the machine says otherwise: the tests start hundreds of processes, each of
# which would compile every module anew.
export PYTHONDONTWRITEBYTECODE :=

# A hung test is a failed test: the whole suite is bounded where the machine
# has coreutils' `timeout`. Two workers, since the smallest machine has two cores.
TEST_LIMIT_S ?= 2400
BOUNDED := $(if $(shell command -v timeout 2>/dev/null),timeout --signal=INT --kill-after=20 $(TEST_LIMIT_S))
PYTEST := $(BOUNDED) $(BIN)/python -m pytest -q -n 2 --dist loadgroup --durations=12

.PHONY: demo test quick kernels lint format clean soak-differential soak-order bench-order
.DEFAULT_GOAL := test

demo: $(READY)
	$(BIN)/python -m crescando demo

# Of the elastic world's seeds as many as leave the whole suite within its time; alone they are 300.
# Types are checked on one core while the kernels are compiled on the other.
test: $(READY)
	$(MAKE) -j 2 lint kernels
	CRESCANDO_ELASTIC_SEEDS=$${CRESCANDO_ELASTIC_SEEDS:-20} $(PYTEST)

quick: $(READY)
	$(PYTEST) -m "not slow and not simulation and not differential and not spark"

# Every batch on every layout and on SQLite; about ten minutes on two cores.
soak-differential: $(READY)
	$(BIN)/python -m tests.engine.soak

# Ten minutes of churn: new rows, texts and shapes all the time, and memory that stays where it is.
.PHONY: soak-engine
soak-engine: $(READY)
	$(BIN)/python -m tests.engine.churn

# A fresh process with no kernel compiled: its first answer, and its slowest until it is at full speed. The
# modules have bytecode, as those of an installed package have.
.PHONY: cold-start
cold-start: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[kernels]'
	$(BIN)/python -m compileall -q crescando
	$(BIN)/python -m tests.engine.cold_start

# Every interleaving of the small scopes, deeper than the tests go; some ten minutes and 1.5 GB.
.PHONY: exhaustive-scopes
exhaustive-scopes: $(READY)
	$(BIN)/python -m tests.simulation.deeper_scopes

# Real processes over TLS that are killed, stopped and cut off while the ring changes; 25 loops take some 18 minutes.
.PHONY: torture
LOOPS ?= 25
torture: $(READY)
	$(BIN)/python -m tests.nodes.torture --loops $(LOOPS)

# The ordering path under faults; 20000 seeds are the measure, and take half an hour on two cores.
SEEDS ?= 20000
soak-order: $(READY)
	$(BIN)/python -m crescando.testing soak --world ecast --seeds $(SEEDS)

# Clusters that grow, shrink and heal: a crash at each step of each transformation, and many seeds.
.PHONY: soak-elastic soak-elastic-seeds
ROUNDS ?= 200
soak-elastic: $(READY)
	$(BIN)/python -m crescando.testing soak-elastic --rounds $(ROUNDS)

ELASTIC_SEEDS ?= 2000
soak-elastic-seeds: $(READY)
	CRESCANDO_ELASTIC_SEEDS=$(ELASTIC_SEEDS) $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/simulation -k elastic

# The ordering path beside its peers; BENCH=--quick takes four minutes instead of twenty-five.
BENCH ?=
bench-order: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	$(BIN)/python -m benchmarks.order $(BENCH)

# Shared scans beside frames, column stores and row stores; BENCH=--quick takes four minutes instead of thirty.
.PHONY: bench-engine
bench-engine: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[bench-engine]'
	$(BIN)/python -m benchmarks.engine $(BENCH)

# A store that scales, moves and heals, with the figures of RB13 §7; BENCH=--quick takes some minutes.
.PHONY: bench-elastic
bench-elastic: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[bench-elastic]'
	$(BIN)/python -m benchmarks.elastic $(BENCH)

# Raw flights through Spark into a store and out again, compared with pandas in the end. Needs Java 17.
.PHONY: demo-spark
demo-spark: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[demo,spark]'
	$(BIN)/python -m examples.spark_flights

# Loads and extracts by Spark beside Parquet and PostgreSQL; BENCH=--quick takes four minutes. Needs Java 17.
.PHONY: bench-spark
bench-spark: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[bench-spark]'
	$(BIN)/python -m benchmarks.spark $(BENCH)

# The whole system over TLS: reads and writes a second, waits, costs, peers; BENCH=--quick takes four minutes.
.PHONY: bench-cluster
bench-cluster: $(READY)
	$(BIN)/python -m pip install --quiet -e '.[bench-cluster]'
	$(BIN)/python -m benchmarks.cluster $(BENCH)

# Hostile frames for a listening process; half a minute.
.PHONY: fuzz
fuzz: $(READY)
	$(BIN)/python -m fuzz.frames

# A client that stops reading a long answer for a minute, beside others; two minutes.
.PHONY: slow-reader
slow-reader: $(READY)
	$(BIN)/python -m tests.nodes.slow_reader

# Certificates that live for less than a minute, renewed under load for five.
.PHONY: soak-certificates
soak-certificates: $(READY)
	$(BIN)/python -m tests.nodes.rotation

# Once for all processes of this machine, where it has not been done for these sources.
kernels: $(READY)
	-$(BIN)/python -m crescando.warming

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Built again whenever the dependencies may have changed.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[test,lint]'
	touch $(READY)
