# What people and CI call; `make demo` and `make test` do their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ASCEND_VENV := .venv-ascend
DISTRIBUTIONS := perfcollect_core perfcollect_ops_builtin perfcollect_ops_vllm_ascend perfcollect_comm
METADATA := pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml)
PYTEST_ARGS ?=
EMULATOR_PYTEST_ARGS ?=
# src/ layouts need no help from the current directory, and must not get any.
export PYTHONSAFEPATH := 1

.PHONY: help venv install demo samples test lint types budget bench docs dist check test-core-alone clean \
	drill-kill drill-faults drill-writes emulator test-emulator release-vllm-ascend emulator-demo drill-ascend

help:
	@echo "make demo    set up, then replay the bundled sample database on the CPU"
	@echo "make test    set up, then run the tests"
	@echo "make check   lint types test budget docs dist, as CI does"

venv: $(BIN)/python

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "perfcollect needs Python 3.10 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

install: $(VENV)/.installed

$(VENV)/.requirements: requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -r requirements-dev.txt
	@touch $@

# Editable installs read their metadata once: a changed pyproject.toml installs again.
$(VENV)/.installed: $(VENV)/.requirements $(METADATA)
	$(BIN)/python -m pip install --quiet --no-build-isolation $(DISTRIBUTIONS:%=-e %)
	@touch $@

demo: install
	$(BIN)/python samples/demo.py

# After an operator's example rows changed.
samples: install
	$(BIN)/python samples/rebuild.py

test: install
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)
	@if $(MAKE) --no-print-directory emulator; then $(MAKE) --no-print-directory test-emulator; \
	elif [ "$$CI" = true ]; then exit 1; \
	else echo "skipped: the tests on an emulated CANN, which cannot be set up here (the reason is above)"; fi

# The real torch_npu on an emulated CANN, in an environment of its own: tests/ascend_emulator/README.md.
emulator: $(ASCEND_VENV)/.installed
	$(ASCEND_VENV)/bin/python tests/ascend_emulator/build.py --env-file $(ASCEND_VENV)/emulator.env

$(ASCEND_VENV)/.installed: requirements-ascend.txt $(METADATA)
	$(PYTHON) -m venv $(ASCEND_VENV)
	$(ASCEND_VENV)/bin/python -m pip install --quiet -r requirements-ascend.txt
	$(ASCEND_VENV)/bin/python -m pip install --quiet --no-build-isolation $(DISTRIBUTIONS:%=-e %)
	@touch $@

test-emulator: emulator
	PERFCOLLECT_EMULATOR_TESTS=1 $(ASCEND_VENV)/bin/python -m pytest -n 2 --dist loadgroup tests/ascend_emulator \
	  $(EMULATOR_PYTEST_ARGS)

# The whole sample database on one and on four emulated devices, launches held against rows (DEMO_ARGS="--rows 1-2").
emulator-demo: emulator
	$(ASCEND_VENV)/bin/python tests/ascend_emulator/emulator_demo.py $(DEMO_ARGS)

# 2,000 launches with 5 % faults on emulated devices; goes on where DRILL_ARGS="--directory DIR" names one that began.
drill-ascend: emulator
	$(ASCEND_VENV)/bin/python tests/drills/ascend.py $(DRILL_ARGS)

# Before a release: vllm-ascend's own operators, from its wheel, on the emulated CANN (2 GB; RELEASE_ARGS="--ops ...").
release-vllm-ascend: emulator
	$(ASCEND_VENV)/bin/python tests/ascend_emulator/release_vllm_ascend.py $(RELEASE_ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

# What a command may import before it does its job.
budget: install
	$(BIN)/python -m pytest -q tests/core/cli/test_import_budget.py
	$(BIN)/python benchmarks/ops_listing.py

# Every figure of the speed targets but parsing's; BENCH_ARGS=--full for the long form.
bench: install
	$(BIN)/python benchmarks/run_all.py $(BENCH_ARGS)

# The long forms of what tests do in short: kill -9, injected faults, failing writes (DRILL_ARGS="--kills 20").
drill-kill: install
	$(BIN)/python tests/drills/kill.py $(DRILL_ARGS)

drill-faults: install
	$(BIN)/python tests/drills/faults.py $(DRILL_ARGS)

drill-writes: install
	$(BIN)/python tests/drills/writes.py $(DRILL_ARGS)

# Every hook, option and example of the documentation as it is in the program.
docs: install
	$(BIN)/python -m pytest -q tests/docs

dist: install
	rm -rf dist
	@for project in . $(DISTRIBUTIONS); do \
	  $(BIN)/python -m build --quiet --no-isolation --outdir dist $$project || exit 1; \
	done
	@ls -1 dist

check: lint types test budget docs dist

# Core's own tests where only core is installed and torch is not.
test-core-alone: install
	$(BIN)/python tests/support/isolated.py

clean:
	rm -rf dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
