# Every target does all the set-up it needs, from a python3 with pip.
#   make demo              simulate a sensor network and do the main job on it
#   make demo LOG=path     the same on a delivery log of yours; ARGS="--time-column ts ..." says
#                          which columns mean what
#   make demo-frame        a small program: a frame with copies; demo-broker, demo-otlp likewise
#   make check             the tests that start no program, Java or browser
#   make test              the test suite
#   make test-all          everything, before you close an issue
#   make coverage          the same with coverage of the library, which takes twice as long
#   make lint              style, types and the language budget
#   make format            format the code
#   make docs              the documentation as a site, into out/docs/
#   make notebooks         run the notebooks and write them as pages to out/notebooks/
#   make bench             the benchmarks (one core, a few minutes)
#   make quality           the paper's figures again, as tables and pictures (a few minutes)
#   make serve             the aggregator, on its default port
#   make relays            two sites, a relay and a hub on this machine, and what crosses
#   make wheel             this platform's wheel of the library, into dist/
#   make sanitize          the tests of the kernels, with every slip of theirs an error
#   make pins              resolve requirements/dev.txt again (UPGRADE=1: to the newest versions)

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
UV := PYTHONPATH=.boot $(PYTHON) -m uv
PYTEST_PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
SANITIZED_TESTS := --ignore tests/minhit/test_readme.py tests/minhit tests/integral tests/asyncwindow \
	tests/ecm tests/querytime tests/series tests/extremes tests/wire tests/laws tests/golden tests/core \
	tests/tables tests/ingest/test_scanners.py
SOURCES := decaysketch api spark_jobs demo examples benchmarks quality notebooks tests scripts

# Every process of the suite, and every program that one starts, reads the same modules: where the
# environment says that no bytecode is to be kept, each of them compiles all of them.
KEEPING_BYTECODE := PYTHONDONTWRITEBYTECODE=

.PHONY: setup demo demo-frame demo-broker demo-otlp check test test-all coverage lint format docs notebooks bench quality serve relays \
	wheel sanitize pins clean

setup:
	@$(PYTHON) scripts/setup.py

demo: setup
	@$(VENV_PYTHON) -m demo $(if $(LOG),--log "$(LOG)") $(ARGS)

demo-frame demo-broker demo-otlp: demo-%: setup
	@$(VENV_PYTHON) -m examples.$*

check: setup
	$(KEEPING_BYTECODE) $(VENV_PYTHON) -m pytest $(PYTEST_PARALLEL) -m "not process and not jvm and not browser and not exhaustive"

# It starts Java once: an archive of Spark's classes takes longer to make than it saves.
test: setup
	$(KEEPING_BYTECODE) $(VENV_PYTHON) -m pytest $(PYTEST_PARALLEL) -m "not exhaustive"

test-all: setup
	@$(VENV_PYTHON) -m spark_jobs.archive
	$(KEEPING_BYTECODE) $(VENV_PYTHON) -m pytest $(PYTEST_PARALLEL)

coverage: setup
	@$(VENV_PYTHON) -m spark_jobs.archive
	$(KEEPING_BYTECODE) $(VENV_PYTHON) -m pytest --cov --cov-report=term $(PYTEST_PARALLEL)

lint: setup
	$(VENV_PYTHON) -m ruff check $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m ruff format --check $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m mypy
	@.venv/bin/lint-imports --no-cache
	@$(VENV_PYTHON) scripts/prose.py

format: setup
	$(VENV_PYTHON) -m ruff check --fix $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m ruff format $(wildcard $(SOURCES))

docs: setup
	@$(VENV_PYTHON) scripts/command_line.py
	@$(VENV_PYTHON) scripts/site.py

notebooks: setup
	@$(VENV_PYTHON) -m notebooks

bench: setup
	@$(VENV_PYTHON) -m benchmarks

quality: setup
	@$(VENV_PYTHON) -m quality all

serve: setup
	@$(VENV_PYTHON) -m api

relays: setup
	@$(VENV_PYTHON) -m demo.relays $(ARGS)

# On Linux auditwheel finds out with which C libraries it runs, and puts that into its name.
wheel: setup
	@rm -rf build/wheel
	@$(UV) build --quiet --wheel --no-build-isolation --python $(VENV_PYTHON) --out-dir build/wheel
	@mkdir -p dist
	@case $$(uname) in \
	Linux) PATH="$(CURDIR)/.venv/bin:$$PATH" $(VENV_PYTHON) -m auditwheel repair \
		--wheel-dir dist build/wheel/*.whl ;; \
	*) cp build/wheel/*.whl dist ;; \
	esac
	@ls dist/*.whl

# Kernels that end the process where they read or write out of bounds, or where C leaves open what
# happens. They are built in a folder of their own, beside a copy of the library that is run there:
# what is compiled for everything else stays. Takes gcc. The C++ library comes first as well: the
# sanitizer looks for its exceptions when a process begins, and some package throws one later.
SANITIZED := build/sanitized
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
PRELOADED := libasan.so libstdc++.so.6
IN_SANITIZED = LD_PRELOAD="$(foreach each,$(PRELOADED),$$(gcc -print-file-name=$(each)))" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONSAFEPATH=1 \
	PYTHONPATH=$(CURDIR)/$(SANITIZED)/lib:$(CURDIR):$(CURDIR)/tests $(VENV_PYTHON)

sanitize: setup
	@CC=gcc CFLAGS="$(SANITIZE) -O1 -g -fno-omit-frame-pointer" LDFLAGS="$(SANITIZE)" \
		DECAYSKETCH_BUILD=$(SANITIZED) $(VENV_PYTHON) setup.py -q build \
		--build-base $(SANITIZED)/base --build-lib $(SANITIZED)/lib
	@$(IN_SANITIZED) -c "from decaysketch import minhit; print(minhit._native.__file__)" \
		| grep $(SANITIZED)
	$(IN_SANITIZED) -m pytest -o pythonpath= $(SANITIZED_TESTS)
	$(IN_SANITIZED) -m quality.hostile --bodies 20000 --posts 0

pins: setup
	$(UV) pip compile pyproject.toml --extra dev --universal \
		--python-version 3.11 --no-header --quiet $(if $(UPGRADE),--upgrade) \
		--output-file requirements/dev.txt

clean:
	rm -rf .boot .venv .java build dist out .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find decaysketch -name '_*native.*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
