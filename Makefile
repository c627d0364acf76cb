# make setup   create .venv and install seqloom with everything for development
# make demo    set up, then train the embedded example, translate, show where the model looked (under 2 minutes)
# make test    set up, then lint, type-check and run the tests
# make check-all   set up, then run every documented command for real, trainings in 20 steps (data below SEQLOOM_DATA)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test check-all lint types clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: setup
	@$(BIN)/seqloom demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest -n auto --dist loadfile

check-all: setup
	$(BIN)/python -m bench.documented

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
