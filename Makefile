# The front door. CMakeLists.txt is the build description, CMakePresets.json its variants.
# Every target works on a fresh Debian 12 or 13: missing packages are installed first.
PREFIX ?= /usr/local
BUILD := build
JOBS := $(shell nproc 2>/dev/null || echo 2)
C_FILES = $(shell find include src cli tests bench examples -name '*.[ch]' 2>/dev/null)

.PHONY: all reference demo test bench install format check clean help deps
all: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

deps:
	@scripts/install-deps.sh

$(BUILD)/build.ninja: | deps
	@cmake --preset release

demo: $(BUILD)/build.ninja # without the tests: they take as long again to build
	@cmake --build $(BUILD) --target forerun
	@rm -rf runs/demo
	@$(BUILD)/forerun compare examples/demo.yaml --out runs/demo

test: all
	@scripts/install-deps.sh --test
	@ctest --preset release -j $$(($(JOBS) + 1)) # some tests wait more than they compute
	@cp $(BUILD)/Testing/Temporary/LastTest.log $(BUILD)/test.log # before the next ones overwrite it
	@scripts/test-isas.sh $(BUILD)
	@scripts/list-skipped.sh $(BUILD)/test.log

bench: all
	@scripts/install-deps.sh --bench
	@bench/compare.py --build $(BUILD) $(if $(PYTHON),--python $(PYTHON))

install: all
	@cmake --preset release -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build $(BUILD)
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD)

reference: all
	@scripts/make-reference.sh $(BUILD)/forerun

format:
	@scripts/install-deps.sh --dev
	@clang-format-14 -i $(C_FILES)

check:
	@scripts/install-deps.sh --dev
	@if command -v clang-format-14 >/dev/null; then clang-format-14 --dry-run -Werror $(C_FILES); \
	else echo 'check: formatting was left out: it is that of clang-format-14, which is not installed'; fi
	@scripts/check-house.sh

clean:
	rm -rf $(BUILD) build-*

help:
	@echo 'make           build/forerun, optimised'
	@echo 'make demo      one network on Fashion-MNIST in seven ways: a table, a report (some minutes)'
	@echo 'make test      all tests'
	@echo 'make bench     training speed beside PyTorch [PYTHON=interpreter that has it]'
	@echo 'make install   library, headers, forerun.pc, command [PREFIX=/usr/local DESTDIR=]'
	@echo 'make reference docs made from the code: reference, man page, figures of methods'
	@echo 'make format    lay out the sources by .clang-format'
	@echo 'make check     formatting, layering and the other house rules'
	@echo 'make clean     remove build folders'
