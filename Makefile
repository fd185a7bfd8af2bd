# make demo: install and run the first 20 questions.  make test: everything that must hold.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# The tests start hundreds of programs, none of which should compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test soak bench ui clean

demo: .venv/.installed
	$(BIN)/python -m dkgi

# Where npm has no registry, tests of what it installs skip and say so. Half as many processes again as cores: tests wait a lot.
test: .venv/.installed-dev
	-$(BIN)/python -m dkgi.nodetools pi@0.65.0 pi@0.73.1 codex@0.171.0
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n $$(($$(nproc) * 3 / 2)) --dist loadfile --no-loadscope-reorder

# The first one looks at the whole machine, so nothing runs beside it.
soak: .venv/.installed-dev
	$(BIN)/pytest tests/soak/test_jail_soak.py
	$(BIN)/pytest -n auto --dist loadfile tests/soak --deselect tests/soak/test_jail_soak.py

bench: .venv/.installed-dev
	for script in tests/bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

ui: .venv/.installed
	$(BIN)/python -m dkgi.ui

clean:
	rm -rf .venv

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --use-pep517 --constraint constraints.txt --editable .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install --quiet --use-pep517 --constraint constraints.txt --editable '.[dev]'
	touch $@
