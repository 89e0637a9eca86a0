# Every target works from a fresh clone: it makes .venv when it is missing or stale. `make lint`, `quick`, `coverage` and `format` need no
# TensorFlow: where there is no .venv, they make .venv-dev, a tenth as large.
# `make venv` and `make demo` take the stack that the machine's Python allows (.ci/stack): TensorFlow 2.14 in .venv, or 2.17 in .venv-2.17.
# Variables: PYTHON=/path/to/python3.10 (for .venv and .venv-dev; 3.12 or 3.11: for .venv-2.17), PYTEST_FLAGS (added to pytest),
# GPU_PYTHON (gpu-test without .venv), ZOO=folder (where `make zoo` writes), COVERED=test (coverage of all tests that need no GPU), NEW_PIP_FLAGS (added to pip for .venv-new).

LIGHT := lint quick coverage format help clean
ENV := $(if $(wildcard .venv)$(filter-out $(LIGHT),$(MAKECMDGOALS))$(filter test,$(COVERED)),.venv,.venv-dev)
EXTRAS_.venv := tftrt,dev,test,bench,docs
EXTRAS_.venv-dev := dev
PY := $(ENV)/bin/python
STAMP := $(ENV)/.stamp
TESTS := not gpu and not corpus and not portable and not new and not images and not bench
PYTEST_FLAGS ?=
COVERED ?= quick
GPU_PYTHON ?= $(PY)
PY_2.17 := .venv-2.17/bin/python
STAMP_2.17 := .venv-2.17/.stamp
TAKEN := $(if $(filter venv demo,$(MAKECMDGOALS)),$(shell PYTHON='$(PYTHON)' .ci/stack))
# Prints TFTRT_ALLOW_TENSORRT=8.6.0 where that release stands in for TensorFlow's own.
SWITCH_2.17 = $$($(PY_2.17) .ci/tensorrt --switch)
# convert, INT8, verify, publish, serve, smoke, export: about six minutes of processor time.
CORE_2.17 := $(addprefix tests/rooms/,tftrt/test_convert.py tftrt/test_int8.py accuracy/test_verify.py servers/test_publish.py \
  servers/test_serve_command.py servers/test_smoke.py servers/test_serving_rest.py tensorrt/test_export.py)
NEW_PY := .venv-new/bin/python
NEW_STAMP := .venv-new/.stamp
NEW_PIP_FLAGS ?=
ZOO ?= build/zoo

.DEFAULT_GOAL := help
.PHONY: help venv venv-2.17 test test-2.17 test-2.17-core quick coverage demo zoo lint format docs gpu-test corpus portable test-new test-images test-fleet triton bench bench-tests clean FORCE

help:
	@echo "make test      make lint, then every test that needs no GPU, but for those of benchmarks/"
	@echo "make quick     the tests that start no process and load no TensorFlow, in two minutes"
	@echo "make coverage  which lines the tests of make quick run, in build/coverage/html; COVERED=test: all that need no GPU"
	@echo "make demo      the whole way on a small model, without a GPU"
	@echo "make zoo       write the sample SavedModels to $(ZOO)"
	@echo "make gpu-test  the tests that need an NVIDIA GPU"
	@echo "make corpus    convert and verify models that others have trained (downloads them once; no GPU)"
	@echo "make portable  install without TensorFlow on Python 3.10 to 3.13, and run there what needs none (downloads packages)"
	@echo "make test-new  exports of the newest TensorFlow, Keras and PyTorch, on Python 3.13 or 3.12 in .venv-new (downloads packages)"
	@echo "make test-images  build and run the images of serving/Dockerfile, as root with podman (downloads packages, 28 GB of disk)"
	@echo "make triton    a tritonserver for its tests, in build/triton (55 MB to download)"
	@echo "make test-fleet the tests of --on with Ray, which is put in build/ray (75 MB to download)"
	@echo "make bench     the tests of benchmarks/ (make bench-tests: these alone), then the benchmarks"
	@echo "make lint      ruff, mypy over the package, and the order of its rooms (.importlinter)"
	@echo "make format    lay out the code as ruff does; make lint checks it"
	@echo "make docs      the pages as a site, in build/site; docs/flags.md from the commands"
	@echo "make venv      only create or refresh .venv; where no Python 3.10 is, and 3.12 or 3.11 is, .venv-2.17"
	@echo "make venv-2.17 TensorFlow 2.17, on Python 3.12 or 3.11, in .venv-2.17 (7 GB)"
	@echo "make test-2.17 the tests of make test on .venv-2.17, without make lint (make test-2.17-core: the most important files)"
	@echo "make clean     remove build outputs and caches (.venv and .venv-dev stay; remove them by hand)"

# Without a Python .ci/stack has said so, and ends with no word on stdout.
venv: $(or $(TAKEN),.no-python)/.stamp

.no-python/.stamp:
	@exit 1

# Timestamps cannot see a Python that was uninstalled or a checkout that was moved (an editable install names its
# folder), so both are asked: the stamp holds the folder, and the interpreter has to run.
state = $(shell $(1)/bin/python -c 'print("runs")' 2>/dev/null; cat $(1)/.stamp 2>/dev/null)
ifneq ($(call state,$(ENV)),runs $(CURDIR))
$(STAMP): FORCE
endif
ifneq ($(call state,.venv-2.17),runs $(CURDIR))
$(STAMP_2.17): FORCE
endif

$(STAMP): constraints.txt pyproject.toml
	@$(PY) -c 'import pip, sys; raise SystemExit(sys.version_info[:2] != (3, 10))' 2>/dev/null || { \
	  python=$$(.ci/find_python) && rm -rf $(ENV) && echo "creating $(ENV) with $$python" && "$$python" -m venv $(ENV); }
	$(PY) -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[$(EXTRAS_$(ENV))]'
	@echo '$(CURDIR)' > $@

venv-2.17: $(STAMP_2.17)

$(STAMP_2.17): constraints-2.17.txt pyproject.toml .ci/tensorrt
	@$(PY_2.17) -c 'import pip' 2>/dev/null || { python=$$(.ci/find_python 3.12 3.11) && \
	  rm -rf .venv-2.17 && echo "creating .venv-2.17 with $$python" && "$$python" -m venv .venv-2.17; }
	$(PY_2.17) -m pip install --disable-pip-version-check --quiet --constraint constraints-2.17.txt --editable '.[tftrt-2-17,dev,test,bench,docs]'
	$(PY_2.17) .ci/tensorrt
	@echo '$(CURDIR)' > $@

# worksteal keeps the tests of a module together, so that its servers and models are mostly made by one worker alone.
test: $(STAMP) lint
	$(PY) -m pytest -n 2 --dist worksteal -m "$(TESTS)" $(PYTEST_FLAGS)

test-2.17: $(STAMP_2.17)
	env $(SWITCH_2.17) $(PY_2.17) -m pytest -n 2 --dist worksteal -m "$(TESTS)" $(PYTEST_FLAGS)

test-2.17-core: $(STAMP_2.17)
	env $(SWITCH_2.17) $(PY_2.17) -m pytest -n 2 --dist worksteal -m "$(TESTS) and not slow" $(PYTEST_FLAGS) $(CORE_2.17)

quick: $(STAMP)
	$(PY) -m pytest -n 2 --dist worksteal --quick -m "$(TESTS)" $(PYTEST_FLAGS)

# Processes that tests start are measured, too, and so are forks (pyproject.toml). What did run is reported, whether tests failed or not.
coverage: $(STAMP)
	rm -rf build/coverage && mkdir -p build/coverage
	$(PY) -m coverage run -m pytest -n 2 --dist worksteal $(if $(filter quick,$(COVERED)),--quick) \
	  -m "$(TESTS)" $(PYTEST_FLAGS); result=$$?; \
	  $(PY) -m coverage combine --quiet && $(PY) -m coverage html --quiet && $(PY) -m coverage report > build/coverage/report.txt && \
	  tail -1 build/coverage/report.txt; exit $$result

lint: $(STAMP)
	$(PY) -m ruff format --quiet --check . || { echo 'make format mends that' >&2; exit 1; }
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(dir $(PY))lint-imports --no-logo --cache-dir=.mypy_cache/imports

format: $(STAMP)
	$(PY) -m ruff check --quiet --select I --fix .
	$(PY) -m ruff format .

# Strict: a link or an anchor that leads nowhere ends it.
docs: $(STAMP)
	$(PY) -m docs.tools.flags
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# TensorRT 8.6.0 is allowed where .ci/tensorrt got no 8.6.1, and it has said so.
demo: venv
	$(if $(filter .venv-2.17,$(TAKEN)),TFTRT_ALLOW_TENSORRT=8.6.0) $(TAKEN)/bin/python -m saved_models.demo

zoo: $(STAMP)
	$(PY) -m saved_models all --output=$(ZOO)

# A machine that brings its own Python with the whole stack names it in GPU_PYTHON and needs no .venv.
gpu-test: $(if $(filter $(PY),$(GPU_PYTHON)),$(STAMP))
	$(GPU_PYTHON) -m pytest -m gpu $(PYTEST_FLAGS)

# What the tests found is printed as a table, whether they passed or not.
corpus: $(STAMP)
	$(PY) -m pytest -m corpus $(PYTEST_FLAGS); result=$$?; \
	  $(PY) -m benchmarks.real_models --table --output=build/real_models/tests; exit $$result

# Without TensorFlow, on each of Python 3.10 to 3.13 that is found; -rs names those that are not.
portable: $(STAMP)
	$(PY) -m pytest -m portable -rs $(PYTEST_FLAGS)

# The newest of all packages, on purpose: nothing is pinned. NEW_PIP_FLAGS can name an index with PyTorch's wheels for CPUs alone.
test-new: $(NEW_STAMP)
	$(NEW_PY) -m pytest -m new tests/rooms/tensorrt/test_new_sources.py tests/rooms/tensorrt/test_torch_families.py $(PYTEST_FLAGS)

$(NEW_STAMP): pyproject.toml
	python=$$(.ci/find_python 3.13 2>/dev/null || .ci/find_python 3.12) && rm -rf .venv-new && "$$python" -m venv .venv-new
	$(NEW_PY) -m pip install --disable-pip-version-check --quiet $(NEW_PIP_FLAGS) --editable '.[test-new]'
	touch $@

# serving/Dockerfile, on bases that are made here; -rs says why, where none can be made. TFTRT_IMAGES=folder keeps the images.
test-images: $(STAMP)
	$(PY) -m pytest -m images -rs tests/images $(PYTEST_FLAGS)

# Tests of the benchmarks alone.
bench-tests: $(STAMP)
	$(PY) -m pytest -n 2 --dist worksteal -m "not gpu and bench" $(PYTEST_FLAGS)

bench: bench-tests
	$(PY) -m benchmarks

# tritonserver for tests/rooms/servers/test_triton_server.py, as the wheel brings it: only its files are used, not its Python packages.
triton: $(STAMP)
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --upgrade --target build/triton nvidia-pytriton==0.7.0

# Ray for the tests of tftrt_tools/fleet, beside .venv: what else it needs is there.
test-fleet: $(STAMP)
	$(PY) -m pip install --disable-pip-version-check --quiet --no-deps --upgrade --target build/ray -c constraints.txt ray filelock msgpack
	PYTHONPATH=$(CURDIR)/build/ray $(PY) -m pytest -m "$(TESTS)" -rs tests/rooms/fleet tests/rooms/studies/test_fleet_builds.py \
	  tests/rooms/studies/test_elsewhere_ray.py $(PYTEST_FLAGS)

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path './.venv*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
