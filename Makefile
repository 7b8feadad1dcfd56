# A thin front for Meson. Everything lands in build/ (BUILD=… for another folder); see CONTRIBUTING.md.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
WERROR ?= 0
PYTHON := /usr/bin/python3
MESON := /usr/bin/meson
NINJA := ninja
# On a terminal one line tells how far it is; elsewhere there is only what went wrong.
MAKES = test -t 1 || quiet=--quiet; $(NINJA) -C $(BUILD) $$quiet

export BUILD PREFIX

all: $(BUILD)/build.ninja
	@$(MAKES) programs

$(BUILD)/build.ninja:
	@scripts/deps.sh build
	$(MESON) setup $(BUILD) -Dprefix='$(PREFIX)' $(if $(filter 1,$(WERROR)),-Dwerror=true) $(SETUP)

# The same programs with a switch that makes any system call fail: $(BUILD)/faulty/.
faulty: all
	@$(MAKES) faulty

# Unit tests only, quickly, on what is built.
unit: all
	@$(MESON) test -C $(BUILD) --print-errorlogs

test:
	@scripts/deps.sh build test vm
	@scripts/as_root.sh $(PYTHON) scripts/test.py $(PARTS)

# The kernel that virtual machines run, from Debian: $(BUILD)/vm/. Then `cloche run --isolation vm` works.
vm-kernel:
	@scripts/deps.sh vm
	@$(PYTHON) scripts/vm_kernel.py $(BUILD)/vm

demo: all
	@scripts/deps.sh demo
	@scripts/as_root.sh scripts/demo.sh

bench: all
	@scripts/deps.sh bench vm
	@scripts/as_root.sh tests/bench/run $(ARGS)

# 64 clients for half an hour: what of the daemon grows? ARGS='--minutes 8' for less.
soak: all
	@scripts/deps.sh build
	@scripts/as_root.sh env CLOCHE_BUILD='$(abspath $(BUILD))' $(PYTHON) tests/soak/soak.py $(ARGS)

# On a machine with a GPU: nvidia-smi, CUDA and PyTorch in sandboxes. Exit status 3: there is none.
test-gpu: all
	@scripts/as_root.sh $(PYTHON) tests/gpu/test_gpu.py --build '$(abspath $(BUILD))' $(ARGS)

# clang-tidy over all sources, each once: what has passed before is remembered. ANALYZE=1: with the static analyzer.
tidy: all
	@scripts/deps.sh tidy
	@$(PYTHON) scripts/tidy.py $(BUILD) $(if $(filter 1,$(ANALYZE)),--analyze)

format:
	@scripts/deps.sh tidy
	@clang-format-14 -i $$(git ls-files 'src/*.[ch]' 'tools/*.c' 'tests/*.[ch]')

# What is built is good for any prefix: programs find each other from where they are.
install: $(BUILD)/build.ninja
	@$(MAKES) programs
	@scripts/install.sh '$(DESTDIR)'

# Data stays: /var/lib/cloche, /var/cache/cloche, /etc/cloche.
uninstall:
	@scripts/uninstall.sh '$(DESTDIR)'

clean:
	rm -rf $(BUILD) build-asan build-clang build-aarch64 build-sysroot-arm64

.PHONY: all faulty unit test test-gpu vm-kernel demo bench soak tidy format install uninstall clean
