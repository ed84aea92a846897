# The front door: everything real is in meson.build, scripts/ and bench/. `make help` lists what there is.
BUILD   ?= build
RELEASE := $(BUILD)/release
PREFIX  ?= /usr/local
DESTDIR ?=
# Arguments of bench/run, bench/jobs/run, bench/coordinator/run, bench/server/run and bench/export/run, and which: wal, jobs, load, server, export, or all.
ARGS    ?=
PART    ?=
# How long `make torture` runs in all, in minutes.
MINUTES ?= 30

.DEFAULT_GOAL := all
.PHONY: all help packages check-packages configure demo test check torture bench install format clean

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

demo: configure ## a log, a load, and server, jobs and workers survive kill -9 and a cut network, with counts, and an export is verified (about a minute)
	@scripts/build $(RELEASE) src/cli/sluice
	@scripts/demo $(RELEASE)/src/cli/sluice

test: configure ## all tests but the long ones; ends with "N passed, N failed"
	@scripts/build $(RELEASE)
	@scripts/run-tests $(RELEASE)

check: check-packages ## warnings as errors, sanitizers, fuzzers, crash loops, format, include direction, docs
	@scripts/check static gcc clang asan tsan fuzz crash syncs kill9

torture: check-packages ## the long versions of crash states, kill cycles and fuzzers, for MINUTES=30
	@scripts/torture $(MINUTES)

bench: configure ## side by side with their peers: the log, the job queue, loads, the server, the export (PART=wal, jobs, load, server or export; ARGS=--quick)
	@scripts/install-packages bench/packages
	@meson setup --reconfigure $(RELEASE) >/dev/null
	@scripts/build $(RELEASE) bench/sluice-bench bench/sluice-bench-jobs bench/sluice-bench-beanstalk bench/sluice-bench-submit bench/sluice-bench-raw bench/sluice-bench-ingest bench/sluice-bench-rows src/cli/sluice
	@case "$(PART)" in jobs | load | server | export) ;; *) bench/run $(RELEASE) $(ARGS) ;; esac
	@case "$(PART)" in wal | load | server | export) ;; *) command -v npm >/dev/null || scripts/install-packages bench/jobs/packages ;; esac
	@case "$(PART)" in wal | load | server | export) ;; *) npm install --prefix bench/jobs --no-package-lock --no-audit --no-fund --silent ;; esac
	@case "$(PART)" in wal | load | server | export) ;; *) bench/jobs/run $(RELEASE) $(ARGS) ;; esac
	@case "$(PART)" in wal | jobs | server | export) ;; *) bench/coordinator/run $(RELEASE) $(ARGS) ;; esac
	@case "$(PART)" in wal | jobs | load | export) ;; *) bench/server/run $(RELEASE) $(ARGS) ;; esac
	@case "$(PART)" in wal | jobs | load | server) ;; *) command -v npm >/dev/null || scripts/install-packages bench/export/packages ;; esac
	@case "$(PART)" in wal | jobs | load | server) ;; *) npm install --prefix bench/export --no-package-lock --no-audit --no-fund --silent ;; esac
	@case "$(PART)" in wal | jobs | load | server) ;; *) bench/export/run $(RELEASE) $(ARGS) ;; esac

install: configure ## into PREFIX=/usr/local, below DESTDIR when given
	@meson configure $(RELEASE) -Dprefix=$(PREFIX)
	@scripts/build $(RELEASE) $$(scripts/installed $(RELEASE))
	@DESTDIR=$(abspath $(DESTDIR)) meson install -C $(RELEASE) --no-rebuild --quiet

format: check-packages ## clang-format all C files
	@scripts/check-format --fix

clean: ## remove the build folder
	rm -rf $(BUILD)
