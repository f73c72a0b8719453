# The README's two commands are `make demo` and `make test`. Every target makes or refreshes the
# environment first, which takes no time when nothing that it is made from has changed.
#
# TORCH names the PyTorch to build against; pip fetches it as pip is configured. On Linux pip's
# default index holds the CUDA build only, which works without a GPU, too. Where pip is also shown
# PyTorch's own index of CPU builds (PIP_EXTRA_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS),
# it prefers the CPU build by itself, so nothing here has to choose.
TORCH ?= 2.13.0
# The interpreter that the environment is made with; empty: the first on PATH that fits.
PYTHON ?=
VENV ?= .venv
# More for pytest: make test PYTEST='-k shaw'
PYTEST ?=

PY := $(VENV)/bin/python
SET_UP := $(VENV)/set-up-for
WANTED := PyTorch $(TORCH), Python $(or $(PYTHON),any), $(CURDIR)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint tables docs bench

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

setup: $(SET_UP) ## .venv with PyTorch, fairseq and this package (2 to 8 minutes, once)

demo: setup ## learn English to German from 72,000 real sentences (5 minutes on two free cores)
	@$(PY) -m snakemake -s examples/demo/Snakefile --workflow-profile examples/profiles/default -j 2

test: setup ## the tests, but for the slow ones and those for a GPU (3 minutes on two free cores)
	@$(PY) -m pytest -n auto --dist worksteal $(PYTEST)

test-slow: override PYTEST += -m "slow and not gpu"
test-slow: test ## the slow tests

lint: setup ## style, types, spelling, prose, and tables that differ from results/
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m codespell_lib
	$(PY) -m cogapp --check --diff -I tools README.md docs/*.md results/*.md
	$(PY) -m proselint check --config proselint.json *.md docs examples results

tables: setup ## the documentation's tables and figures of measurements, from results/
	@$(PY) -m cogapp -r -I tools README.md docs/*.md results/*.md
	@$(PY) tools/figures.py

docs: setup ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build
	@echo "wrote build/site; to read it: $(PY) -m http.server --directory build/site"

bench: setup ## speed and memory against stock fairseq, as JSON in bench/ (8 minutes)
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks

# The stamp says what the environment was made for: another TORCH, PYTHON or folder makes it anew.
ifneq ($(shell cat $(SET_UP) 2>/dev/null),$(WANTED))
.PHONY: $(SET_UP)
endif
$(SET_UP): setup.py pyproject.toml tools/setup.sh
	@VENV='$(VENV)' TORCH='$(TORCH)' PYTHON='$(PYTHON)' bash tools/setup.sh
	@echo '$(WANTED)' > $@
