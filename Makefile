# One command each; `make help` lists them. Everything happens in .venv, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
FILE ?= experiments/breakout.yaml
SECONDS ?= 120

.DEFAULT_GOAL := help
.PHONY: help install dev train test lint typecheck imports bench doctor docs test-containers

help:  ## This list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## Everything that training needs, in .venv.

dev: $(VENV)/.dev  ## And what the tests need.

train: $(VENV)/.installed  ## Train Breakout for two minutes (FILE=experiments/pong.yaml SECONDS=600 change that).
	$(BIN)/herd train $(FILE) --stop.wall_seconds $(SECONDS)

test: lint typecheck imports  ## All checks and tests; about twelve minutes on two cores.
	$(BIN)/python -m pytest -n 2 -m "not learning and not soak and not containers"

lint: $(VENV)/.dev  ## Style: ruff.
	$(BIN)/ruff check herd services images tests benchmarks
	$(BIN)/ruff format --check herd services images tests benchmarks

typecheck: $(VENV)/.dev  ## Types: mypy, strict.
	$(BIN)/mypy

imports: $(VENV)/.dev  ## Which room may import which: import-linter.
	$(BIN)/lint-imports

bench: $(VENV)/.installed  ## Measure this machine: every stage alone and all together.
	$(BIN)/herd bench $(FILE)

doctor: $(VENV)/.installed  ## What this machine has and lacks.
	$(BIN)/herd doctor

test-containers: $(VENV)/.dev  ## Build all images and train in them (needs root, podman, buildah, debootstrap; half an hour).
	$(BIN)/python -m pytest -m containers tests/containers

docs: $(VENV)/.dev  ## Write the generated reference pages again.
	$(BIN)/python -m herd.config.reference > docs/configuration.md
	$(BIN)/python -m herd.telemetry.reference > docs/metrics.md
	$(BIN)/python -m images.requirements

# The stamps are newer than what they were made from, so a changed pyproject.toml installs again.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable ".[all]" --constraint constraints.txt
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable ".[dev]" --constraint constraints.txt
	@touch $@ $(VENV)/.installed
