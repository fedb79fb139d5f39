# Thin targets; the work is in cargo and in scripts/. `make help` lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
SOAK_MINUTES ?= 10
BARE ?= demo test
TARGET = $(or $(CARGO_TARGET_DIR),target)
BUILD = . scripts/path.sh; $(CARGO) build --release --locked --target-dir '$(TARGET)' -p raddle
RADDLE = '$(TARGET)/release/raddle'
# Runs the raddle beside it.
BENCH = '$(TARGET)/release/raddle-bench'

.PHONY: help build test test-bare test-kernels counts check unit e2e fuzz soak bench demo install uninstall clean

help:
	@echo 'make demo     see it work on a small fabric (root; a minute, after a build of five)'
	@echo 'make test     format, lints, docs, licences, all tests, counts, a short fuzz'
	@echo 'make test-kernels  raddle on Linux 6.1 and 6.12 of Debian, emulated (root; see CONTRIBUTING.md)'
	@echo 'make test-bare  make demo and make test on a bare Debian 12 (root; an hour); with BARE=demo only the first'
	@echo 'make counts   instructions of the hot paths, against their limits'
	@echo 'make bench    measure raddle beside the kernel (root; about five minutes)'
	@echo 'make install  build and install into $(PREFIX)'
	@echo 'make fuzz     fuzz every parser for FUZZ_SECONDS=$(FUZZ_SECONDS) each'
	@echo 'make soak     compare engines and kernel on drawn states for SOAK_MINUTES=$(SOAK_MINUTES) (root)'

build:
	@scripts/need.sh build
	$(BUILD)

test:
	@scripts/need.sh build test kernels
	scripts/test.sh

test-bare:
	scripts/test-bare.sh $(BARE:%='make %')

test-kernels:
	@scripts/need.sh build kernels
	scripts/kernels/run.sh

counts:
	@scripts/need.sh counts
	scripts/counts.sh

fuzz:
	@scripts/need.sh build fuzz
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh

soak:
	@scripts/need.sh build soak
	SOAK_MINUTES=$(SOAK_MINUTES) scripts/soak.sh

demo:
	@scripts/need.sh build demo
	$(BUILD) -p raddle-bench
	$(BENCH) demo --out '$(TARGET)/demo'

bench:
	@scripts/need.sh build bench
	$(BUILD) -p raddle-bench
	$(BENCH) forward

install:
	@scripts/need.sh build
	$(BUILD)
	scripts/install.sh $(RADDLE) '$(DESTDIR)' '$(PREFIX)'

uninstall:
	scripts/install.sh --remove '$(DESTDIR)' '$(PREFIX)'

clean:
	. scripts/path.sh; $(CARGO) clean
	rm -rf fuzz/target
