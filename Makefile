# Each target is one command; `make help` lists them. Most use .venv, which is created when it is first needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
FILE ?= breakout
SECONDS ?= 120
TESTS ?= tests
# Tests that need an hour, a cluster or root have their own targets.
ORDINARY := not learning and not soak and not cluster and not containers
# More workers than cores are used, because tests of processes mostly wait. Neighbouring tests share a worker and its fixtures.
WORKERS := -n 3 --dist worksteal

# The tests start thousands of processes: compile each module only once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev train check test test-slow test-cluster test-containers lint typecheck imports bench gpu doctor docs docs-site diagrams helm helm-security mutants

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## Install everything that training needs into .venv.

dev: $(VENV)/.dev  ## Install what the tests need as well, and the hook that checks each commit.

train: $(VENV)/.installed  ## Train Breakout for two minutes (FILE=pong SECONDS=600 change that).
	$(BIN)/herd train $(FILE) --stop.wall_seconds $(SECONDS)

check: lint typecheck imports  ## Run after every change: style, types, imports, and tests without processes; three to five minutes on two cores.
	$(BIN)/python -m pytest $(WORKERS) -m "not processes and $(ORDINARY)"

# A test that fails beside others runs once more alone, so that a busy machine is not taken for a defect. Both results are printed.
test: lint typecheck imports  ## Run all checks and tests; about half an hour on two cores.
	$(BIN)/python -m pytest $(WORKERS) -m "$(ORDINARY)" || \
		{ test $$? = 1 && $(BIN)/python -m pytest -x --last-failed -m "$(ORDINARY)"; }

test-slow: $(VENV)/.dev  ## Run the tests with half a core for each worker, as on a slow machine (TESTS=tests/wire, SLOW_CORES=0.5; needs root).
	$(BIN)/python -m pytest -p tests.slow_machine $(WORKERS) -m "$(ORDINARY)" $(TESTS)

test-cluster: $(VENV)/.dev  ## Test the chart on the cluster of KUBECONFIG: install, scale, kill, upgrade, uninstall.
	$(BIN)/python -m pytest -m cluster tests/cluster

test-containers: $(VENV)/.dev  ## Build all images and train in them (needs root, podman, buildah, debootstrap; half an hour).
	$(BIN)/python -m pytest -m containers tests/containers

lint: $(VENV)/.dev  ## Check style: ruff.
	$(BIN)/ruff check herd services docsite helm images observability tests benchmarks
	$(BIN)/ruff format --check herd services docsite helm images observability tests benchmarks

typecheck: $(VENV)/.dev  ## Check types: mypy, strict.
	$(BIN)/mypy

imports: $(VENV)/.dev  ## Check which package may import which: import-linter.
	$(BIN)/lint-imports

bench: $(VENV)/.installed  ## Measure this machine: each stage alone and the whole system.
	$(BIN)/python -m benchmarks.machine $(FILE)

gpu: $(VENV)/.dev  ## Test and measure on this machine's GPU; a quarter of an hour; an interrupted run goes on where it was.
	$(BIN)/python -m benchmarks.gpu

doctor: $(VENV)/.installed  ## Check that this machine is ready to train.
	$(BIN)/herd doctor

docs: $(VENV)/.dev  ## Regenerate reference pages, dashboard and requirement files.
	$(BIN)/python -m herd.config.loading.reference > docs/configuration.md
	$(BIN)/python -m herd.protocols.catalogue > docs/metrics.md
	$(BIN)/python -m docsite.messages > docs/messages.md
	$(BIN)/python -m observability
	$(BIN)/python -m images.requirements

# NO_MKDOCS_2_WARNING suppresses the theme's advertisement of its successor, which would count as a warning.
docs-site: $(VENV)/.dev  ## Build the documentation site into site/: mkdocs; warnings are errors. Pages load nothing from other hosts.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean

diagrams:  ## Redraw the diagrams of the documentation (needs Graphviz's dot).
	for name in services unroll weight; do \
		dot -Tsvg docs/diagrams/$$name.dot | sed '/^<!-- Generated/,/-->/d' > docs/pictures/$$name.svg || exit 1; done

helm: $(VENV)/.dev  ## Regenerate the chart's schema and README.
	$(BIN)/python -m helm.tools.values_schema > $(VENV)/values.schema.json
	mv $(VENV)/values.schema.json helm/herd/values.schema.json
	$(BIN)/python -m helm.tools.chart_readme > $(VENV)/chart-readme.md
	mv $(VENV)/chart-readme.md helm/herd/README.md

# checkov has its own environment, because it pins about fifty packages. Skipped: users build the images, so the chart cannot know their
# digests (43); with Always, thousands of actors would ask the registry at once (15); the pod of helm test ends by itself and accepts no
# connections, so it has no probes (8, 9); the pod of run-end alone has a token, because it calls the API server (38).
CHECKOV := $(VENV)-checkov
helm-security: $(VENV)/.dev  ## Check all rendered manifests for security findings: checkov.
	test -x $(CHECKOV)/bin/checkov || $(PYTHON) -m venv $(CHECKOV)
	$(CHECKOV)/bin/python -m pip --disable-pip-version-check install --quiet checkov==3.3.30
	rm -rf $(CHECKOV)/rendered && mkdir $(CHECKOV)/rendered
	for values in helm/herd/ci/*-values.yaml; do \
		"$$($(BIN)/python -m helm.tools.fetch_tools 4)" template herd helm/herd --namespace rl --values $$values \
			> $(CHECKOV)/rendered/$$(basename $$values) || exit 1; done
	$(CHECKOV)/bin/checkov --framework kubernetes --skip-download --quiet --compact --directory $(CHECKOV)/rendered \
		--skip-check CKV_K8S_8,CKV_K8S_9,CKV_K8S_15,CKV_K8S_38,CKV_K8S_43

# Each change is made in a copy of the tree. Changes with which TESTS still pass are listed.
MUTANTS := $(VENV)-mutants
MUTATED ?= herd/protocols/unrolls/outbox.py
TESTS ?= tests/wire/test_wire_outbox.py
mutants: $(VENV)/.dev  ## Mutation testing: check that TESTS notice single changes of MUTATED (cosmic-ray, some seconds per change).
	test -x $(MUTANTS)/bin/cosmic-ray || $(PYTHON) -m venv $(MUTANTS)
	$(MUTANTS)/bin/python -m pip --disable-pip-version-check install --quiet cosmic-ray==8.7.0
	rm -rf $(MUTANTS)/tree && mkdir $(MUTANTS)/tree
	git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory $(MUTANTS)/tree
	printf '[cosmic-ray]\nmodule-path = "%s"\ntimeout = 300.0\nexcluded-modules = []\ntest-command = "%s -m pytest -x -q %s"\n[cosmic-ray.distributor]\nname = "local"\n' \
		"$(MUTATED)" "$(abspath $(BIN))/python" "$(TESTS)" > $(MUTANTS)/tree/mutants.toml
	cd $(MUTANTS)/tree && export PYTHONPATH=.:$$(echo services/* | tr ' ' :) && \
		../bin/cosmic-ray init mutants.toml mutants.sqlite && ../bin/cosmic-ray exec mutants.toml mutants.sqlite && \
		../bin/cr-report --surviving-only --show-diff mutants.sqlite

# A pyproject.toml that is newer than the stamps triggers a new installation. The hook is not installed in an additional worktree, where
# .git is a file: all worktrees share one hook, which would keep using the .venv of this one.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable ".[all]" --constraint constraints.txt
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable ".[dev]" --constraint constraints.txt
	@test ! -d .git || $(BIN)/pre-commit install
	@touch $@ $(VENV)/.installed
