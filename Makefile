# Thin targets; the work is in cargo and in scripts/. `make help` lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10

.PHONY: help build test check unit e2e fuzz bench demo install uninstall clean

help:
	@echo 'make demo     see it work on a small fabric (root, two minutes)'
	@echo 'make test     format, lints, docs, licences, all tests, a short fuzz'
	@echo 'make bench    measure raddle beside the kernel (root)'
	@echo 'make install  build and install into $(PREFIX)'
	@echo 'make fuzz     fuzz every parser for FUZZ_SECONDS=$(FUZZ_SECONDS) each'

build:
	@scripts/need.sh build
	$(CARGO) build --release --locked -p raddle

test:
	@scripts/need.sh build test
	scripts/test.sh

fuzz:
	@scripts/need.sh build
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh

demo:
	@scripts/need.sh build demo
	$(CARGO) build --release --locked -p raddle
	target/release/raddle demo

bench:
	@scripts/need.sh build bench
	$(CARGO) build --release --locked -p raddle
	target/release/raddle bench forward

install:
	@scripts/need.sh build
	$(CARGO) build --release --locked -p raddle
	scripts/install.sh target/release/raddle '$(DESTDIR)' '$(PREFIX)'

uninstall:
	scripts/install.sh --remove '$(DESTDIR)' '$(PREFIX)'

clean:
	$(CARGO) clean
	rm -rf fuzz/target
