# SPDX-License-Identifier: Apache-2.0
# A thin front over CMake: plain `make` builds the program and puts ./llmtrain here; `make help` lists the goals.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
DEPENDENCIES := scripts/install_dependencies.sh
CTEST = ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

.DEFAULT_GOAL := all
.NOTPARALLEL:  # the goals are steps in order; the build tool below has its own -j
.PHONY: all program tests measurements install-dependencies demo test test-full fuzz oracles bench style clean help

all:  ## build the program: ./llmtrain (says which packages are missing)
	@$(DEPENDENCIES) --check
	@$(MAKE) --no-print-directory program

demo: install-dependencies program  ## text -> training on two ranks -> a sample, in minutes
	@scripts/demo.sh

test: install-dependencies program tests  ## the tests; installs missing packages when root
	@$(CTEST) -LE full

test-full: install-dependencies program tests  ## the tests, and those that take long
	@$(CTEST)

fuzz:  ## give the parsers to libFuzzer, a minute each (needs clang; scripts/fuzz.sh SECONDS for longer)
	@scripts/fuzz.sh

oracles: program  ## compare every number with an independent NumPy implementation (Python environment outside the tree)
	@scripts/oracles.sh

bench: install-dependencies program measurements  ## time the demo, and GPT-2 by operation; prints records for perf/records
	@scripts/bench.py
	@scripts/bench.py --operations --build $(BUILD)
	@scripts/bench.py --operations --build $(BUILD) precision.compute=bf16

style:  ## check house style, levels and the seam
	@scripts/check_style.py

clean:  ## remove what was built; data/ and runs/ stay
	@rm -rf $(BUILD) llmtrain

help:  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "Variables: BUILD (folder: $(BUILD)), JOBS ($(JOBS)), CMAKE_FLAGS (e.g. -DLLMTRAIN_WERROR=ON; for all options: cmake -S . -B $(BUILD) -LH)"

install-dependencies:
	@$(DEPENDENCIES)

program: configure
	@cmake --build $(BUILD) -j $(JOBS) --target program
	@ln -sfn $(BUILD)/llmtrain llmtrain

tests: configure
	@cmake --build $(BUILD) -j $(JOBS)

measurements: configure
	@cmake --build $(BUILD) -j $(JOBS) --target measurements

# Configured once, with Ninja where it is there, and again when flags are given.
.PHONY: configure
configure:
	@[ -z "$(CMAKE_FLAGS)" ] && [ -f $(BUILD)/build.ninja -o -f $(BUILD)/Makefile ] || \
	  cmake -S . -B $(BUILD) $$([ -f $(BUILD)/CMakeCache.txt ] || ! command -v ninja >/dev/null || echo -G Ninja) $(CMAKE_FLAGS)
