# The commands a newcomer needs. Each does what it depends on, and skips what is done.
JOBS ?= 2
BUILD := build
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup configure build test quickstart bench fuzz format lint clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup:  ## install packages and LibTorch (Debian 12; elsewhere: says what is missing)
	@scripts/setup.sh

configure: setup
	@mkdir -p $(BUILD)
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }

build: configure  ## build everything into build/bin
	@cmake --build $(BUILD) -j $(JOBS)

test: build  ## build and run every test that needs no GPU
	@scripts/fetch_slurm.sh
	@scripts/fetch_kubernetes.sh
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error

quickstart: configure  ## train a small model at arithmetic by GRPO: minutes on two cores (ARGS='grpo.seed=1' overrides)
	@cmake --build $(BUILD) -j $(JOBS) --target programs
	@$(BUILD)/bin/manta run configs/quickstart_grpo.yaml $(ARGS) \
	  checkpointing.checkpoint_dir=results/quickstart_grpo/$$(date +%Y%m%d-%H%M%S)

bench: build  ## the benchmarks that need no GPU
	@tests/bench/run.sh $(BUILD)

fuzz: configure  ## every fuzzer for a minute (FUZZ_SECONDS=n for another time)
	@cmake --build $(BUILD) -j $(JOBS) --target fuzzers
	@tests/fuzz/run.sh $(BUILD) $${FUZZ_SECONDS:-60}

format:  ## clang-format (which setup does not bring) over our sources
	@git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format -i

lint: configure  ## clang-tidy (which setup does not bring) over our sources
	@git ls-files '*.cc' | grep -v -e _test.cc -e ^tests/ | xargs -P $(JOBS) -n 4 clang-tidy --quiet -p $(BUILD)

clean:  ## remove what was built (not .deps)
	@rm -rf $(BUILD)
