# Every target does all the set-up it needs, from a python3 with pip.
#   make demo              simulate a sensor network and do the main job on it
#   make demo LOG=path     the same on a delivery log of yours; ARGS="--time-column ts ..." says
#                          which columns mean what
#   make test              the whole test suite
#   make coverage          the same with coverage of the library, which takes twice as long
#   make lint              style and types
#   make notebooks         run the notebooks and write them as pages to out/notebooks/
#   make bench             the benchmarks (one core, a few minutes)
#   make quality           the paper's figures again, as tables and pictures (a few minutes)
#   make serve             the aggregator, on its default port
#   make pins              resolve requirements/dev.txt again (UPGRADE=1: to the newest versions)

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
PYTEST_PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder
SOURCES := decaysketch api spark_jobs demo benchmarks quality notebooks tests scripts

.PHONY: setup kernels demo test coverage lint notebooks bench quality serve pins clean

setup:
	@$(PYTHON) scripts/setup.py

demo: setup
	@$(VENV_PYTHON) -m demo $(if $(LOG),--log "$(LOG)") $(ARGS)

# Compiled once, before; or else several of the processes compile the same at the same time.
kernels: setup
	@$(VENV_PYTHON) -c "from api.operations import warmup; from decaysketch import batch; \
		warmup.warm_up(); batch.warm_up()"

test: kernels
	$(VENV_PYTHON) -m pytest $(PYTEST_PARALLEL)

coverage: kernels
	$(VENV_PYTHON) -m pytest --cov --cov-report=term $(PYTEST_PARALLEL)

lint: setup
	$(VENV_PYTHON) -m ruff check $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m ruff format --check $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m mypy

notebooks: setup
	@$(VENV_PYTHON) -m notebooks

bench: setup
	@$(VENV_PYTHON) -m benchmarks

quality: setup
	@$(VENV_PYTHON) -m quality all

serve: setup
	@$(VENV_PYTHON) -m api

pins: setup
	PYTHONPATH=.boot $(PYTHON) -m uv pip compile pyproject.toml --extra dev --universal \
		--python-version 3.11 --no-header --quiet $(if $(UPGRADE),--upgrade) \
		--output-file requirements/dev.txt

clean:
	rm -rf .boot .venv .java out .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
