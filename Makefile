# Quorate: every target does its own set-up; only Python 3.11+ and make are assumed.
# Distributions build Python with profile-guided optimisation: a node takes 7 % less CPU time on it.
PYTHON ?= $(shell for each in /usr/bin/python3.11 python3.11 /usr/bin/python3 python3; do \
	$$each -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SPARK := $(VENV)/.spark
CHART := $(VENV)/.chart
CONSOLE := $(VENV)/.console
PROTOS := $(shell find proto -name '*.proto' 2>/dev/null)
export PYTHONDONTWRITEBYTECODE ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test fmt lint type proto proto-check unit ledger architecture conformance deps-system lock \
	clean conformance-mutants fuzz sim mutants mutants-code node-mutants baseline model-check bench-wire bench-log bench-raft \
	house sbom bench-model bench-spark bench-session bench-edge bench-security bench-api bench-people bench-rpc test-rpc test-domain bench bench-entry test-chart test-console test-kubernetes test-image test-image-spark test-image-kerberos test-hosts test-spark

help:  ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-22s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer, with venv, is needed: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements.lock
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(SPARK): requirements-spark.lock $(DEV)
	$(PIP) install --require-hashes -r requirements-spark.lock
	@touch $@

$(CHART): requirements-chart.lock $(DEV)
	$(PIP) install --require-hashes -r requirements-chart.lock
	@touch $@

$(CONSOLE): requirements-console.lock $(DEV)
	$(PIP) install --require-hashes -r requirements-console.lock
	@touch $@

setup: $(DEV)  ## create the virtual environment with everything the tests need

demo: $(RUNTIME)  ## run three nodes, send real MSMQ packets, kill the leader, print a verdict; in two minutes
	@$(BIN)/python -m qm demo

test: setup lint type proto-check unit ledger  ## run everything CI checks (under 20 minutes on 2 cores)

fmt: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup  ## check style, import contracts, choices
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/shellcheck .ci/run deploy/*/*.sh tests/*.sh
	$(BIN)/lint-imports
	$(BIN)/python -m tests.conformance.choices

house: setup  ## report the code's layout: modules per folder, import cycles, longest parts, duplicates, legs of a message
	$(BIN)/python -m tests.house --list

type: setup  ## check types strictly
	$(BIN)/mypy

proto: setup  ## generate the protobuf and gRPC code from proto/
	$(BIN)/python -m tests.proto_check --write

proto-check: setup  ## fail if generated code is not current
	$(BIN)/python -m tests.proto_check

# In two processes what needs one core; clusters of processes need both.
PROCESSES := $(addprefix tests/cluster/test_,demo.py drill.py objects.py processes.py remote_readers.py)
SLOW := tests/chart tests/console tests/drills tests/kubernetes tests/spark
CLAIMS := build/claims
unit: setup  ## run all tests but the slow suites
	rm -rf $(CLAIMS)
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --spec-outcomes $(CLAIMS) tests $(addprefix --ignore=,$(SLOW) $(PROCESSES))
	$(BIN)/python -m pytest -q --spec-outcomes $(CLAIMS) $(PROCESSES)

ledger: unit  ## add up the ledger of catalogue rows from the outcomes of `make unit`
	$(BIN)/python -m tests.conformance.ledger --recorded $(CLAIMS)

# Needs other versions of the product's dependencies, so it gets its own environment.
CHECKOV := build/checkov/.installed
$(CHECKOV): requirements-checkov.lock | $(VENV)/bin/python
	$(PYTHON) -m venv --clear build/checkov
	build/checkov/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

test-chart: $(CHART) $(CHECKOV)  ## render the Helm chart and check its objects, alerts and dashboards (needs promtool)
	$(BIN)/yamllint -s -c helm/.yamllint helm/quorate/values.yaml helm/quorate/examples helm/quorate/files tests/chart
	$(BIN)/python -m pytest -q tests/chart

test-kubernetes: setup  ## install, scale, drain and upgrade a release under load (KUBECONFIG, kubectl, helm, QUORATE_IMAGE=)
	$(BIN)/python -m pytest -q -x tests/kubernetes

test-console: $(CONSOLE)  ## open every page of the console in a browser, kill the leader under it (needs chromium)
	$(BIN)/python -m pytest -q tests/console

test-image: $(CHART)  ## build the image twice, compare every byte, start it as in the compose file (root, buildah, debootstrap)
	$(BIN)/python -m tests.image

test-image-spark: $(SPARK) $(CHART)  ## build the audit image and run it as a job, and as Spark's driver and executor (needs as test-image)
	$(BIN)/python -m tests.image.spark

test-image-kerberos: $(CHART)  ## build the image with Kerberos and let it read a keytab (needs as test-image)
	$(BIN)/python -m tests.image.kerberos

# An S3-compatible server, likewise.
MOTO := build/moto/.installed
$(MOTO): requirements-moto.lock | $(VENV)/bin/python
	$(PYTHON) -m venv --clear build/moto
	build/moto/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

test-spark: $(SPARK) $(MOTO)  ## test the data pipeline's jobs on an embedded Spark (Java 17), archives on disk and behind S3
	$(BIN)/python -m pytest -q --timeout 900 tests/spark

ROUNDS ?= 1
SEED_FIRST ?= 1
TARGET ?= $(if $(filter 0,$(shell id -u)),netns,dev)
.PHONY: drills hostile soak bench-failover drill-mutants
drills: setup  ## run every failover drill ROUNDS= times (as root on network namespaces), then measure the gaps
	rm -f build/drills.json
	$(BIN)/python -m qm drill run --target $(TARGET) --rounds $(ROUNDS) --seed $(SEED_FIRST)
	$(BIN)/python -m tests.bench.failover --fresh

MINUTES ?= 60
soak: setup  ## run random drills on one cluster under load for MINUTES=, from SEED_FIRST=
	$(BIN)/python -m qm drill soak --target $(TARGET) --minutes $(MINUTES) --seed $(SEED_FIRST)

bench-failover: setup  ## measure how long senders wait when the leader fails, compared with peers; continues where it was stopped
	$(BIN)/python -m tests.bench.failover

SECONDS ?= 600
hostile: setup  ## attack three nodes beside honest senders, each class (CLASSES=) for SECONDS= (root, nft); writes build/hostile.json
	rm -f build/hostile.json
	$(BIN)/python -m tests.hostile --seconds $(SECONDS) --seed $(SEED_FIRST) $(if $(CLASSES),--classes $(CLASSES))

drill-mutants: setup  ## check that drills find planted bugs, ROUNDS= times each (root: some need the network cut)
	$(BIN)/python -m tests.drills.mutants --rounds $(ROUNDS)

test-hosts: setup  ## test keepalived and HAProxy of deploy/ on network namespaces (root, keepalived, haproxy, nft)
	$(BIN)/python -m pytest -q tests/drills

architecture: setup  ## draw docs/architecture.svg from the imports
	$(BIN)/python -m tests.architecture

conformance: setup  ## print the ledger of catalogue rows: covered, not applicable, later, open
	$(BIN)/python -m tests.conformance.ledger

conformance-mutants: setup  ## break the code behind sampled rows; their claims must fail (ROWS=200, SEED=, DOCUMENT=mqac); goes on where it stopped
	$(BIN)/python -m tests.conformance.mutants $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS)) $(if $(DOCUMENT),--document $(DOCUMENT))

FUZZ_SECONDS ?= 60
fuzz: setup  ## fuzz the wire codec, RPC and signatures, guided by coverage (FUZZ_SECONDS=)
	test -x $(VENV)-fuzz/bin/python || $(PYTHON) -m venv $(VENV)-fuzz
	$(VENV)-fuzz/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.lock -r requirements-fuzz.lock
	$(VENV)-fuzz/bin/python -m tests.fuzz.wire -max_total_time=$(FUZZ_SECONDS)
	$(VENV)-fuzz/bin/python -m tests.fuzz.rpc -max_total_time=$(FUZZ_SECONDS)
	$(VENV)-fuzz/bin/python -m tests.fuzz.security -max_total_time=$(FUZZ_SECONDS)

# What the images ship, in an environment of its own, seen by the tool from another one.
SBOM := build/sbom/.installed
$(SBOM): requirements-sbom.lock requirements.lock requirements-spark.lock | $(VENV)/bin/python
	$(PYTHON) -m venv --clear build/sbom/tool
	build/sbom/tool/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-sbom.lock
	$(PYTHON) -m venv --clear --without-pip build/sbom/shipped
	$(PIP) --python build/sbom/shipped/bin/python install --require-hashes -r requirements.lock
	$(PIP) --python build/sbom/shipped/bin/python install --require-hashes -r requirements-spark.lock
	@touch $@

sbom: setup $(SBOM)  ## write build/sbom.json (CycloneDX), and the licence of every dependency to build/licences.txt
	build/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --gather-license-texts --of JSON -o build/sbom.json build/sbom/shipped/bin/python
	$(BIN)/python -m tests.sbom build/sbom.json build/licences.txt

SEEDS ?= 0:2000
STEPS ?= 2000
sim: setup  ## run the Raft simulator over many seeds (SEEDS=first:end, STEPS=, MACHINE=model or node)
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --steps $(STEPS) $(if $(MACHINE),--machine $(MACHINE)) --json

mutants: setup  ## check that the simulator finds planted consensus bugs
	$(BIN)/python -m tests.sim.mutants

# Cosmic Ray brings a database layer and Git bindings that nothing else here wants.
COSMIC_RAY := build/cosmic-ray/.installed
$(COSMIC_RAY): requirements-mutation.lock | $(VENV)/bin/python
	$(PYTHON) -m venv --clear build/cosmic-ray
	build/cosmic-ray/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

SEED ?= 1
N ?= 300
JOBS ?= 2
mutants-code: setup $(COSMIC_RAY)  ## break sampled lines of the durable code; tests must notice (SEED=, N=, JOBS=, SIMULATOR=1: seeds judge survivors)
	$(BIN)/python -m tests.mutation --seed $(SEED) --number $(N) --jobs $(JOBS) $(if $(SIMULATOR),--simulator)

node-mutants: setup  ## check that the simulator finds planted bugs of whole nodes
	$(BIN)/python -m tests.sim.nodes.mutants

baseline: setup  ## run the scenarios of docs/raftos.md on stock raftos and on our core
	$(BIN)/python -m tests.baseline

SEQUENCES ?= 10000
model-check: setup  ## compare the state machine with its reference over random command sequences
	MODEL_SEQUENCES=$(SEQUENCES) $(BIN)/python -m pytest -q --timeout 3600 tests/unit/model/test_against_reference.py

bench: setup  ## benchmark three nodes, and RabbitMQ and NATS JetStream where they are installed
	$(BIN)/python -m tests.bench.cluster

bench-entry: setup  ## show what one entry costs with 1 to 512 messages outstanding, and each step of it; BESIDE= another checkout in turns
	$(BIN)/python -m tests.bench.entry $(if $(BESIDE),--beside $(BESIDE))

bench-wire: setup  ## benchmark the wire codec
	$(BIN)/python -m tests.bench.wire

bench-session: setup  ## benchmark the session machine
	$(BIN)/python -m tests.bench.session

bench-edge: setup  ## benchmark a node's MSMQ endpoint, and the cost of idle sessions
	$(BIN)/python -m tests.bench.edge

bench-security: setup  ## benchmark signatures and ciphers, at the edge and in a cluster
	$(BIN)/python -m tests.bench.security
	$(BIN)/python -m tests.bench.security_cluster

bench-api: setup  ## benchmark the data plane over gRPC: three nodes as processes
	$(BIN)/python -m tests.bench.api

bench-people: setup  ## measure what people wait for: console, client, command line
	$(BIN)/python -m tests.bench.people

bench-rpc: setup  ## benchmark remote reads, beside those over gRPC, readers that wait, and objects over DCOM
	$(BIN)/python -m tests.bench.rpc

# impacket would drag other versions into the product's environment, so it gets its own.
IMPACKET := $(VENV)-rpc
$(IMPACKET)/.installed: requirements-rpc.lock | $(VENV)/bin/python
	$(PYTHON) -m venv $(IMPACKET)
	$(IMPACKET)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-rpc.lock
	@touch $@

KERBEROS := $(VENV)/.kerberos
$(KERBEROS): requirements-kerberos.lock $(DEV)
	$(PIP) install --require-hashes -r requirements-kerberos.lock
	@touch $@

test-domain: setup $(KERBEROS) $(IMPACKET)/.installed  ## read from a node by Kerberos in a domain of Samba's (root, samba-ad-dc)
	$(BIN)/python -m tests.rpc_peers.domain $(IMPACKET)/bin/python

test-rpc: setup $(IMPACKET)/.installed  ## ask nodes with impacket, by Samba's PDU tests and with programs on Wine (root)
	$(BIN)/python -m tests.rpc_peers $(IMPACKET)/bin/python
	$(BIN)/python -m tests.rpc_peers.wine_programs

bench-log: setup  ## benchmark the log against a bare pwrite and fdatasync loop
	$(BIN)/python -m tests.bench.log

bench-raft: setup  ## benchmark consensus on three processes: rates, latency, gaps after kill and pause
	$(BIN)/python -m tests.bench.raft

bench-spark: $(SPARK)  ## benchmark audit and compaction of 1 and 10 million operations, and the cost of archiving
	$(BIN)/python -m tests.bench.spark

bench-model: setup  ## benchmark apply through the real store; DEEP= queued messages (10,000,000)
	$(BIN)/python -m tests.bench.model $(if $(DEEP),--deep $(DEEP))

deps-system:  ## install the Debian packages that the complete tests need (root), or say how
	@tests/deps-system.sh

# Options of pip-compile, so that a lock file says nothing of the machine that made it.
COMPILE := $(BIN)/pip-compile -q --strip-extras --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header
lock: | $(VENV)/bin/python  ## update the lock files
	$(PIP) install --require-hashes -r requirements-tools.lock
	$(COMPILE) --extra server -o requirements.lock pyproject.toml
	$(COMPILE) -c requirements.lock --extra server --extra telemetry --extra dev -o requirements-dev.lock pyproject.toml
	$(COMPILE) -c requirements-dev.lock --extra server --extra spark -o requirements-spark.lock pyproject.toml
	$(COMPILE) -c requirements-dev.lock --extra server --extra chart -o requirements-chart.lock pyproject.toml
	$(COMPILE) -c requirements-dev.lock --extra server --extra console -o requirements-console.lock pyproject.toml
	$(COMPILE) -c requirements-dev.lock --extra server --extra kerberos -o requirements-kerberos.lock pyproject.toml
	$(COMPILE) -c requirements-dev.lock --build-deps-for wheel --only-build-deps -o requirements-build.lock pyproject.toml
	echo 'setuptools>=80,<84' | $(COMPILE) -o requirements-spark-build.lock -
	printf '%s\n' 'setuptools>=80,<84' 'cython==3.3.0' | $(COMPILE) -o requirements-kerberos-build.lock -  # as gssapi's pyproject.toml
	echo 'pip-tools>=7.5,<8' | $(COMPILE) -o requirements-tools.lock -
	echo 'cyclonedx-bom>=7.5,<8' | $(COMPILE) -o requirements-sbom.lock -
	echo 'atheris>=3,<4' | $(COMPILE) -c requirements.lock -o requirements-fuzz.lock -
	echo 'moto[s3,server]==5.2.5' | $(COMPILE) -o requirements-moto.lock -
	echo 'cosmic-ray>=8.7,<9' | $(COMPILE) -o requirements-mutation.lock -
	echo 'impacket>=0.13,<0.14' | $(COMPILE) -o requirements-rpc.lock -
	echo 'checkov==3.3.30' | $(COMPILE) -o requirements-checkov.lock -

clean:  ## remove what the targets made
	rm -rf $(VENV) $(VENV)-fuzz $(VENV)-rpc build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
