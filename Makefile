# SPDX-License-Identifier: Apache-2.0
# A thin front of the CMake presets and the scripts; everything real is there.
#
#   make demo                 install what is missing, build, run the demo
#   make check [LABEL=sim]    install what is missing, build, run the tests (those of one label)
#   make rig                  virtual machines with RDMA, CXL and NVMe devices (docs/RIG.md)
#   make bench SUITE=x        build, run one suite of benchmarks
#   make asan | tsan | clang | fuzz | release    one preset: configure, build, test
#   make setup | format | install | clean
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

.PHONY: build setup demo check rig bench asan tsan clang fuzz release install format clean

build: setup
	cmake --preset dev && cmake --build --preset dev

setup:
	@scripts/setup.sh

demo: setup
	@scripts/demo.sh

check:
	@scripts/setup.sh programs
	@scripts/check.sh $(LABEL)

rig:
	@bench/qemu/build.sh

bench: setup
	@scripts/bench.sh $(SUITE)

asan tsan clang fuzz release: setup
	cmake --workflow --preset $@

install: release
	cmake --install build/release

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
