# Each target sets up what it needs, in .venv and build/; a repeat is quick.
#
#   PYTHON=python3.12   Python to build the venv from
#   L3_CUDA_ARCHS=native, L3_CUDA=OFF, L3_DALI=OFF   see docs/install.md; `make clean` after a change
#   DATA=folder         images of the benchmarks
#   PIPELINE="--threads 16 --minutes 3"   less of benchmarks/pipeline.py in `make gpu`
#   TRAINING="--cores 16 --minutes 3"     the same of benchmarks/gpu/training.py
#   LIQUID="--regimes png/400/2 --add"   less of `make liquid`
#   PACK=folder         `make gpu` puts results there as they come
#   WHEEL_OPTIONS="--all --sdist"   more of tools/wheels.py in `make wheel`
#   L3_WHEELS=folder    no package index: take the wheels there (none will do) and the host's own
#                       packages, those on PYTHONPATH too

PYTHON ?= python3
DATA ?= ../shared/data
export L3_CUDA_ARCHS ?= 90

comma := ,
VENV := .venv
PY := $(VENV)/bin/python
# What tests of tests/CMakeLists.txt do not call: the C face and the Python face.
SANITIZED_TESTS := engines/test_c_library python/test_codec
# Those that ask engines and encoder through tests/engines/engines.py alone.
TESTS_OF_ENGINES := encoder/test_encoder_kernels format/test_golden format/test_invalid \
  engines/test_output_plan engines/test_parity encoder/test_roundtrip
LONG_ON_AARCH64 := of_scikit_image or grows_by
INTEGRATIONS := .venv-integrations
STREAMING := .venv-streaming
DOCS := .venv-docs
CTEST = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ctest --output-on-failure --parallel $(shell nproc) --test-dir
RELEASE := build/release
SANITIZE := build/sanitize
AARCH64 := build/aarch64

# Not --system-site-packages: where a Python is a venv itself, that misses its packages.
SITE_OF = $(1) -c 'import site; print(*site.getsitepackages(), sep="\n")'
# Of a venv; Debian's Python names several.
OWN_SITE_OF = $(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

# BUILD_TOOLS begin with pip, so that they are never an empty list.
PIP_INSTALL = $(PIP) -q
ifdef L3_WHEELS
  VENV_FLAGS := --without-pip
  PIP := $(PY) -m pip install --no-index --no-deps
  PREPARE_VENV = $(call SITE_OF,$(PYTHON)) > $$($(call OWN_SITE_OF,$(PY)))/host.pth
  BUILD_TOOLS = pip $(wildcard $(L3_WHEELS)/*.whl)
  EXTRAS :=
  DEMO_EXTRAS :=
  IN_PARALLEL :=
else
  PIP := $(PY) -m pip install
  PREPARE_VENV = $(PIP_INSTALL) --upgrade pip setuptools scikit-build-core pybind11
  BUILD_TOOLS = pip $$($(PY) build_backend/l3_build_backend.py)
  EXTRAS := [bench,demo,test$(if $(filter OFF,$(L3_DALI)),,$(comma)dali)]
  DEMO_EXTRAS := [demo,dali]
  IN_PARALLEL := -n auto --maxprocesses 8 --dist worksteal
endif
# The venv holds the build requirements, so that DALI and CUDA are downloaded once.
PIP_BUILD := $(PIP_INSTALL) --no-build-isolation

CXX_SOURCES := $(shell find benchmarks encoder examples include src tests -type f \
  -name '*.h' -o -name '*.c' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc')
SOURCES := CMakeLists.txt pyproject.toml $(wildcard benchmarks/CMakeLists.txt tests/CMakeLists.txt tests/ptx/CMakeLists.txt) \
  $(wildcard benchmarks/gpu/*.cu benchmarks/gpu/*.h tests/ptx/*.cc tests/ptx/*.h) \
  $(shell find build_backend cmake encoder include python share src tests/native -type f -not -name '*.pyc')

.PHONY: help build build-tests demo test test-aarch64 test-integrations simulate simulate-all gpu gpu-test gpu-bench gpu-peers bench liquid wasm wheel docs \
  gallery docs-links lint sanitize sanitize-clang clean

help:
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 18

build: $(VENV)/package  ## build and install the package into .venv

build-tests: $(VENV)/installed  ## the same with the programs and packages of tests and benchmarks

demo: $(VENV)/package  ## encode photographs, decode them through DALI, compare, draw demo/
	@echo '== Demo: photographs through DALI, 30 CPU seconds'
	$(PY) examples/demo.py

test: $(VENV)/installed  ## run all tests, but for the sanitizers and the tests beside other packages
	$(CTEST) $(RELEASE) --exclude-regex '^replay'
	L3_TESTING_LIBRARY=$(RELEASE)/libl3_testing.so \
	$(PY) -m pytest $(IN_PARALLEL) --durations=20 $(if $(filter OFF,$(L3_DALI)),-m "not dali")

# Two processes that open their first MosaicML datasets together choose the same shared memory.
test-integrations: $(INTEGRATIONS)/installed $(STREAMING)/installed  ## run the tests beside PyTorch, Ray, loaders and others, in venvs of their own
	L3_REQUIRE_PACKAGES=1 $(INTEGRATIONS)/bin/python -m pytest $(IN_PARALLEL) \
	  --ignore=tests/integrations/test_streaming.py tests/integrations
	L3_REQUIRE_PACKAGES=1 $(STREAMING)/bin/python -m pytest tests/integrations/test_streaming.py
	L3_REQUIRE_PACKAGES=1 $(INTEGRATIONS)/bin/python -m pytest $(IN_PARALLEL) -m torch \
	  $$(grep -rl 'mark\.torch' --include='*.py' tests)

# About 4 minutes on two cores with its build, which is apart from the package's.
simulate: $(VENV)/tools  ## the compiled kernels, run without a GPU: tests/ptx/README.md
	$(PY) tests/ptx/simulate.py

simulate-all: $(VENV)/tools  ## the same for every architecture
	$(PY) tests/ptx/simulate.py --all

sanitize: $(SANITIZE)/installed  ## run test files, mutants, random images and tests of the faces under ASan and UBSan
	$(CTEST) $(SANITIZE)
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONPATH="$(SANITIZE)/site$${PYTHONPATH:+:$$PYTHONPATH}" \
	L3_TESTING_LIBRARY=$(SANITIZE)/libl3_testing.so \
	$(PY) -m pytest $(IN_PARALLEL) --capture=sys -m "not dali and not cuda and not slow" \
	  $(SANITIZED_TESTS:%=tests/%.py)

# g++'s sanitizer misses offsets that wrap around: `row[x - 1]` of x = 0 as an unsigned number.
sanitize-clang:  ## the same files and images under Clang's sanitizers, which see more; not part of CI
	cmake --preset fuzz
	cmake --build --preset fuzz --target l3_replay
	$(CTEST) build/fuzz --tests-regex '^replay'

# Every engine that 64-bit ARM has, and the scalar core as its compiler makes it. Needs
# g++-aarch64-linux-gnu and qemu-user-static, which cannot look for leaks. Emulated lanes are the same
# code on each processor. Images that change meanwhile are left to the sanitizers on x86.
RUN_AARCH64 := qemu-aarch64-static -L /usr/aarch64-linux-gnu

test-aarch64: $(VENV)/installed  ## build for 64-bit ARM, and run the tests of format, engines and encoder there, under qemu
	$(call BUILD_AARCH64,$(AARCH64),Release) --target l3_replay l3_serve
	$(call BUILD_AARCH64,$(AARCH64)-sanitize,RelWithDebInfo -DL3_SANITIZE=address$(comma)undefined) --target l3_replay
	$(CTEST) $(AARCH64) --tests-regex '^replay'
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(CTEST) $(AARCH64)-sanitize \
	  --tests-regex '^replay' --exclude-regex changing_images
	L3_TESTING_COMMAND="$(RUN_AARCH64) $(AARCH64)/l3_serve" $(PY) -m pytest $(IN_PARALLEL) \
	  -m "not slow" -k "not ($(LONG_ON_AARCH64))" $(TESTS_OF_ENGINES:%=tests/%.py)

BUILD_AARCH64 = cmake -S . -B $(1) -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake \
  -DCMAKE_BUILD_TYPE=$(2) -DL3_DALI=OFF -DL3_BUILD_PYTHON=OFF -DL3_BUILD_TESTS=ON -DL3_EMULATED_SHARE=100 \
  && cmake --build $(1) --parallel $(shell nproc)

# The decoder behind include/l3/l3.h in one command, for machines without CMake support here.
DECODER := src/capi/l3.cc $(addprefix src/cpu/,border.cc cpu_batch.cc cpu_decoder.cc cpu_engine.cc image_tables.cc large_tile.cc \
  jpeg_kernels.cc jpeg_tiles.cc jpeg_windows.cc) \
  $(wildcard src/format/*.cc src/output/*.cc)
COMPILE_DECODER := -std=c++17 -Wall -Wextra -Wshadow -ffp-contract=off -ffunction-sections -Iinclude -Isrc -I. \
  -Wl,--gc-sections $(DECODER)

wasm: build/wasm/l3.wasm  ## the decoder as WebAssembly with a page that shows a dropped file, in build/wasm

WASM_EXPORTS := malloc free l3_decode l3_decode_size l3_read_head l3_read_info l3_status_message l3_status_name \
  l3_version

# Needs clang, lld, wasi-libc, libc++-dev-wasm32 and libclang-rt-dev-wasm32.
build/wasm/l3.wasm: $(SOURCES) $(wildcard examples/wasm/*)
	mkdir -p $(@D)
	cp examples/wasm/* $(@D)
	clang++ --target=wasm32-wasi -mexec-model=reactor -O2 -flto -fno-exceptions -fno-rtti -fvisibility=hidden \
	  $(COMPILE_DECODER) -Wl,--strip-all,--stack-first,-z,stack-size=1048576 $(WASM_EXPORTS:%=-Wl,--export=%) -o $@

# Sizes have 32 bits. Needs g++ -m32 with its libraries, as Debian's g++-12-multilib.
I686 := build/i686
I686_FLAGS = -m32 -msse2 -mfpmath=sse -isystem /usr/include/$(shell $(CXX) -dumpmachine)

$(I686)/l3_decode_file: tests/native/decode_main.cc $(SOURCES)
	mkdir -p $(@D)
	$(CXX) $(I686_FLAGS) -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -pthread \
	  $< $(COMPILE_DECODER) -o $@

bench: $(VENV)/installed  ## size, CPU speed and memory beside PNG and others
	$(PY) -m benchmarks.cpu size speed memory convert \
	  $(if $(filter OFF,$(L3_DALI)),,reader roi) --data $(DATA)

# About 25 minutes.
liquid: $(VENV)/installed  ## mixed data sets beside single formats, at several rates of the disk
	$(PY) -m benchmarks.cpu liquid $(if $(wildcard $(DATA)),--data $(DATA)) $(LIQUID)

gpu gpu-test gpu-bench gpu-peers: L3_CUDA_ARCHS = native
gpu gpu-test gpu-bench gpu-peers: GPU = PYTHONPATH=".$${PYTHONPATH:+:$$PYTHONPATH}" \
  $(PY) tools/gpu.py --data $(DATA) $(if $(PACK),--pack $(PACK)) --pipeline="$(PIPELINE)" \
  --training="$(TRAINING)"

gpu: $(VENV)/installed  ## on a GPU host: the CUDA tests, compute-sanitizer, benchmarks, tables
	$(GPU)

gpu-test: $(VENV)/installed  ## on a GPU host: the tests and compute-sanitizer alone
	$(GPU) --only tests

gpu-bench: $(VENV)/installed  ## on a GPU host: the benchmarks alone, about 16 minutes (estimated)
	$(GPU) --only benchmarks

NVCOMP6 := build/nvcomp6

# About 11 minutes (estimated), of which 7 are for JPEG files.
gpu-peers: PIPELINE = --threads 16 --batch 32 --rounds 1 --files 128 --tasks whole crops
gpu-peers: $(VENV)/installed $(NVCOMP6)  ## on a GPU host: nvCOMP 5 and 6, nvTIFF, HTJ2K and nvJPEG beside L3
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake $(RELEASE) && cmake --build $(RELEASE) --target l3_bench_nvcomp6
	$(GPU) --only kernels nvcomp nvcomp6 pipeline jpegs

$(NVCOMP6):
	$(PIP_INSTALL) --no-deps --target $@ 'nvidia-libnvcomp-cu12==6.0.*'

wheel: $(VENV)/tools  ## wheels in dist/ for each Python that is here, every supported GPU and several DALIs, tried
	L3_CUDA_ARCHS=all $(PY) tools/wheels.py $(WHEEL_OPTIONS)

lint: $(VENV)/installed  ## ruff, mypy, clang-format, words; no file of more than 1 MiB is committed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) tools/check_words.py
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_SOURCES)
	git ls-files -z | xargs -0 stat -c '%s %n' | awk '$$1 > 2^20 { print "too large: " $$2; found = 1 } END { exit found }'

SPHINX = $(DOCS)/bin/python -m sphinx -q -W --keep-going -j auto -c docs -d build/doctrees

docs: $(DOCS)/installed  ## build the documentation site, build/site/index.html; compiles nothing
	$(SPHINX) . build/site
	cp build/site/README.html build/site/index.html
	$(DOCS)/bin/python tools/check_search.py build/site

gallery: $(INTEGRATIONS)/installed  ## run the examples of the gallery, and draw their pictures anew
	$(INTEGRATIONS)/bin/python tools/draw_gallery.py

docs-links: $(DOCS)/installed  ## look whether links that leave the site lead somewhere; needs a network
	$(SPHINX) -b linkcheck . build/links

clean:  ## remove everything that make wrote
	rm -rf $(VENV) $(INTEGRATIONS) $(STREAMING) $(DOCS) build dist demo docs/gallery

$(VENV)/tools: pyproject.toml build_backend/l3_build_backend.py
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(PREPARE_VENV)
	@echo '== Tools: DALI (424 MB) and what builds L3; without nvcc on PATH, a CUDA compiler (104 MB)'
	$(PIP) $(BUILD_TOOLS)
	@touch $@

# The package without the tests, so that the first run is short. Verbose pip shows ninja's steps.
$(VENV)/package: $(VENV)/tools $(SOURCES)
	@echo '== L3: compiled and installed, up to 4 minutes on two idle cores'
	$(PIP) -v --no-build-isolation -C build-dir=$(RELEASE) \
	  -C cmake.define.L3_BUILD_TESTS=OFF '.$(DEMO_EXTRAS)'
	@touch $@

$(VENV)/installed: $(VENV)/tools $(SOURCES)
	$(PIP_BUILD) -C build-dir=$(RELEASE) \
	  -C cmake.define.L3_BUILD_TESTS=ON '.$(EXTRAS)'
	@touch $(VENV)/package $@

# The wheel of .venv, so that nothing is compiled twice.
$(INTEGRATIONS)/installed: $(VENV)/installed
	$(PYTHON) -m venv $(INTEGRATIONS)
	rm -rf build/wheel
	$(PY) -m pip wheel -q --no-build-isolation --no-deps -w build/wheel \
	  -C build-dir=$(RELEASE) -C cmake.define.L3_BUILD_TESTS=ON .
	$(INTEGRATIONS)/bin/python -m pip install -q --upgrade pip
	$(INTEGRATIONS)/bin/python -m pip install -q --upgrade --force-reinstall --no-deps build/wheel/*.whl
	$(INTEGRATIONS)/bin/python -m pip install -q "$$(echo build/wheel/*.whl)[dali,demo,integrations,test]"
	@touch $@

# On top of the other, so that PyTorch is there once. pip lays what must be older over what is there.
$(STREAMING)/installed: $(INTEGRATIONS)/installed
	$(PYTHON) -m venv $(STREAMING)
	$(call SITE_OF,$(INTEGRATIONS)/bin/python) > $$($(call OWN_SITE_OF,$(STREAMING)/bin/python))/integrations.pth
	$(STREAMING)/bin/python -m pip install -q 'l3dali[streaming]'
	@touch $@

$(DOCS)/installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q --upgrade pip
	$(DOCS)/bin/python -m pip install -q --group docs
	@touch $@

$(SANITIZE)/installed: $(VENV)/installed
	L3_DALI=OFF $(PIP_BUILD) --no-deps --upgrade --target $(SANITIZE)/site \
	  -C build-dir=$(SANITIZE) -C cmake.build-type=RelWithDebInfo \
	  -C cmake.define.L3_SANITIZE=address,undefined -C cmake.define.L3_BUILD_TESTS=ON \
	  $(if $(filter OFF,$(L3_DALI)),,-C cmake.define.L3_NVIMGCODEC=ON) .
	@touch $@
