# One target for each thing there is to do; CI calls the same. All servers they start listen on loopback only.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

BUF_VERSION := 1.75.0
BUF := .tools/buf-$(BUF_VERSION)/node_modules/.bin/buf
ETCD := .tools/etcd-3.6/etcd
ETCD_DEBIAN := .tools/etcd-debian/etcd
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

# Where it is set, each of the many processes that tests start would compile all of Shoal anew: a second each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup compiled demo chat test test-long test-etcd etcd chromium check docs chart bench soak loadtest proto lock publish-contract upgrade

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | column -t -s '|'

setup: .venv/.ready  ## .venv with the pinned dependencies; does nothing when it is up to date

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or later")'
	@echo "installing Shoal and what it needs into .venv: a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --constraint constraints.txt pip
	$(INSTALL) --constraint constraints.txt --build-constraint constraints.txt --editable '.[dev]'
	@touch $@

# Without a C compiler the core stays plain Python, and a line says so: demo, test and bench run all the same.
COMPILED := build/compiled
CORE = SHOAL_CORE=$$(test -f $(COMPILED)/stamp.json && echo compiled || echo python)
compiled: setup  ## the slice node's core, compiled by mypyc, for demo and bench: a minute on two cores, if it has changed
	@$(BIN)/python slice_node/compile_core.py $(COMPILED) --if-possible

demo: compiled  ## a local cluster replays real chat and churn, loses a node, and every message is checked
	$(CORE) $(BIN)/shoal demo

chat: compiled  ## a small group chat on a local cluster, at http://127.0.0.1:7480/ (examples/chat)
	$(CORE) $(BIN)/python examples/chat/server.py

WORKERS ?= 3
test: compiled  ## every test but the longest, WORKERS files at a time; that of the page skips where there is no Chromium
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 12 --durations-min 8 -m 'not long'

test-long: setup  ## the longest tests: the README's commands, jobs of Spark as users start them, a bulk load
	$(BIN)/pytest -m long

etcd: $(ETCD)  ## the newest etcd 3.6, built by Go: coordination is tested with it too

$(ETCD): contract/etcd_main/main.go contract/etcd_main/go.mod contract/etcd_main/go.sum
	@command -v go >/dev/null || { echo "etcd is built by Go $$(sed -n 's/^go //p' contract/etcd_main/go.mod) or later," \
	  "and there is no go on PATH: install it from https://go.dev/dl, or do without (make demo and make test do)"; exit 1; }
	go build -C contract/etcd_main -trimpath -o $(CURDIR)/$@ .
	@touch $@

$(ETCD_DEBIAN):
	@command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "this etcd is Debian's package etcd-server:" \
	  "there is no apt-get here"; exit 1; }
	rm -rf $(@D) && mkdir -p $(@D)
	cd $(@D) && apt-get -qq -o APT::Sandbox::User=root download etcd-server && dpkg -x etcd-server_*.deb . && rm etcd-server_*.deb
	ln -s usr/bin/etcd $@

test-etcd: setup $(ETCD) $(ETCD_DEBIAN)  ## coordination, faults and the demo with each etcd: Debian's, the wheel's, 3.6
	for etcd in $(ETCD_DEBIAN) $$($(BIN)/python -c 'from shoal_local.etcd import etcd_in_wheel as f; print(f())') \
	  $(ETCD); do echo "== $$($$etcd --version | head -1)" && SHOAL_TEST_ETCD=$$etcd $(BIN)/pytest tests/coordination tests/local \
	  tests/redirector tests/system tests/ops/test_demo.py tests/ops/http/test_faults.py \
	  && $(BIN)/shoal demo --etcd $$etcd || exit 1; done

chromium:  ## Chromium for the page's test, by apt-get and as root; does nothing where there is one
	@command -v chromium >/dev/null || command -v apt-get >/dev/null || { echo "Chromium is installed by apt-get, and there is" \
	  "none here: install it yourself, or do without (the page's test then skips)"; exit 1; }
	@command -v chromium >/dev/null || { timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 300 \
	  apt-get -qq --yes --no-install-recommends install chromium chromium-driver >/dev/null; }

check: setup $(BUF)  ## lint, format, types, arrows between components, wire contract
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BUF) lint contract
	$(BUF) breaking contract --against contract/published.binpb

docs: setup  ## a reference of the Python library for its users, in dist/docs
	$(BIN)/python client/write_reference.py dist/docs

chart: setup  ## the Helm chart's table of values, its tests, and an archive of it in dist/
	$(BIN)/python helm/tools/document_values.py
	$(BIN)/pytest tests/helm
	$(BIN)/python -c 'import helm_python; print(helm_python.package("helm/shoal", destination="dist"))'

bench: compiled  ## every benchmark at 100,000 queues, under a minute each
	$(CORE) $(BIN)/shoal bench all --quick

MINUTES ?= 120
soak: setup  ## the fuzzer on every core, from anywhere, for MINUTES, then frames and lifetimes for a tenth each; stops at the first failure and says how to repeat it
	for core in $$(seq $$(nproc)); do $(BIN)/python -m tests.fuzz --minutes $(MINUTES) & pids="$$pids $$!"; done; \
	  for pid in $$pids; do wait $$pid || { kill $$pids 2>/dev/null; exit 1; }; done
	$(BIN)/python -m tests.fuzz.frames --minutes $$(($(MINUTES) / 10 + 1))
	$(BIN)/python -m tests.lifetimes --minutes $$(($(MINUTES) / 10 + 1))

SCALE ?= 4
SHAPE ?= steady
DURATION ?= 300
loadtest: setup  ## the evaluation's residents times SCALE, by Locust, on a fresh cluster; SHAPE, DURATION in s, FLAGS
	$(BIN)/python -m shoal_loadtest.residents --scale $(SCALE) --shape $(SHAPE) --duration $(DURATION) $(FLAGS)

proto: setup  ## generated code and hash vectors, from contract/proto and contract/generate.py
	$(BIN)/python contract/generate.py

publish-contract: $(BUF)  ## with a release: what the next ones must stay compatible with
	$(BUF) build contract --exclude-source-info --output contract/published.binpb

lock: setup  ## what the image installs, with hashes, from constraints.txt: helm/requirements*.txt
	$(BIN)/python helm/tools/lock_image.py

upgrade:  ## renews constraints.txt with the newest allowed versions
	$(PYTHON) -m venv --clear .venv
	$(INSTALL) --upgrade pip setuptools
	$(INSTALL) --editable '.[dev]'
	{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --all --exclude-editable; } > .venv/constraints.txt
	mv .venv/constraints.txt constraints.txt
	$(BIN)/python helm/tools/lock_image.py
	@touch .venv/.ready

$(BUF):
	@command -v npm >/dev/null || { echo "buf, which checks the wire contract, is installed by npm, and there is no npm on PATH:" \
	  "install Node.js from https://nodejs.org, or run the other checks alone: ruff, mypy and lint-imports in $(BIN)"; exit 1; }
	npm install --silent --no-audit --no-fund --prefix .tools/buf-$(BUF_VERSION) @bufbuild/buf@$(BUF_VERSION)
	@touch $@
