# `make build` and `make test` set everything up by themselves; see README.md.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PROFILE ?= local
ARGS ?=

.PHONY: help setup build test test-vllm gpu-check lint doctor wheel lock clean
help:
	@echo "make build   set up, then regenerate EcoAgent (PROFILE=local|smoke|paper, ARGS='--run NAME …')"
	@echo "make test    set up, then lint, type-check and run every test"
	@echo "make test-vllm  real vLLM on the CPU, in an environment of its own (4 GB, 10-15 min)"
	@echo "make gpu-check  a short training and evaluation on a GPU, under 12 GB (ARGS=--cpu: dry run)"
	@echo "make setup   virtual environment with locked dependencies; npm if there is none"
	@echo "make lint    ruff and mypy"
	@echo "make doctor  what of this machine can be used"
	@echo "make wheel   build the wheel into dist/"
	@echo "make lock    resolve requirements.lock anew"
	@echo "make clean   remove the virtual environment and caches; outputs stay"

setup: $(READY)

$(READY): requirements.lock pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh $(VENV)

build: $(READY)
	@$(BIN)/ecoagent build --profile $(PROFILE) $(ARGS)

test: $(READY)
	@sh scripts/test.sh $(VENV)

test-vllm:
	@PYTHON="$${PYTHON:-python3}" sh scripts/test_vllm.sh .venv-vllm

gpu-check: $(READY)
	@sh scripts/gpu_check.sh $(VENV) $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

doctor: $(READY)
	@$(BIN)/ecoagent doctor --profile $(PROFILE)

wheel: $(READY)
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .

lock: $(READY)
	sh scripts/lock.sh $(VENV)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
