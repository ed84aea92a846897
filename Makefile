# The front door: everything real is in meson.build, scripts/ and bench/. `make help` lists what there is.
BUILD   ?= build
RELEASE := $(BUILD)/release
PREFIX  ?= /usr/local
DESTDIR ?=
# Which part `make bench` measures (wal, jobs, load, server, export, backup; all without), and arguments of its run.
ARGS    ?=
PART    ?=
# How long the loops of `make torture` run, in minutes; building, single changes of the code (a sixth), the soak of servers
# (twice as long) and the tests under ASan come on top.
MINUTES ?= 30

.DEFAULT_GOAL := all
.PHONY: all help packages check-packages configure demo test check torture bench install deb format clean

all: configure ## build the library and the command (build/release/src/cli/sluice), the tests and the examples
	@ninja -C $(RELEASE)

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

packages:
	@scripts/install-packages scripts/packages.build

check-packages:
	@scripts/install-packages scripts/packages.build scripts/packages.check

configure: packages
	@scripts/configure $(RELEASE) --prefix=$(PREFIX)

demo: configure ## a log, a load, and server, jobs and workers survive kill -9 and a cut network, with counts, an export is verified, and a damaged file of it comes back from a backup (about a minute)
	@scripts/build $(RELEASE) src/cli/sluice
	@scripts/demo $(RELEASE)/src/cli/sluice

test: configure ## all tests but the long ones; ends with "N passed, N failed"
	@scripts/build $(RELEASE)
	@scripts/run-tests $(RELEASE)

check: check-packages ## warnings as errors, sanitizers, fuzzers, crash loops, format, include direction, docs
	@scripts/check static gcc clang asan tsan fuzz crash syncs kill9

torture: check-packages ## the long versions of crash states, kill cycles and fuzzers, for MINUTES=30 and a soak of twice that; ends with one table of counts
	@scripts/torture $(MINUTES)

bench: configure ## one table beside the peers: log, jobs, loads, server, export, backup, into docs/benchmarks.md (PART=wal, jobs, load, server, export or backup; ARGS=--quick)
	@scripts/bench $(RELEASE) $(PART) $(ARGS)

install: configure ## into PREFIX=/usr/local, below DESTDIR when given
	@to="$(abspath $(DESTDIR))$(PREFIX)"; while [ ! -e "$$to" ]; do to=$$(dirname "$$to"); done; [ -w "$$to" ] || \
		{ echo "make install: you may not write to $$to: sudo make install, or make install PREFIX=\$$HOME/.local" >&2; exit 73; }
	@meson configure $(RELEASE) -Dprefix=$(PREFIX)
	@scripts/build $(RELEASE) $$(scripts/installed $(RELEASE))
	@DESTDIR=$(abspath $(DESTDIR)) meson install -C $(RELEASE) --no-rebuild --quiet
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

deb: packages ## Debian packages, looked at by lintian, into build/deb
	@scripts/install-packages scripts/packages.deb
	@scripts/deb $(BUILD)/deb

format: check-packages ## clang-format all C files
	@scripts/check-format --fix

clean: ## remove the build folder
	rm -rf $(BUILD)
