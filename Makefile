# Persistent shared-buffer cache for PostgreSQL 18.  "make help" lists the targets.
#
# Everything is made below build/; the logic is in tools/ and tests/.  Started
# as root, all but "deps" and "deps-docs" runs as an unprivileged user (tools/as-user).

export PGSRC PG_SUITES PG_MIRROR FETCH PG_CONFIGURE_EXTRA WITH_LIBPMEM WITH_LIBNDCTL WITH_LIBXXHASH
export RUNS FRESH PATRONI DEADLINE
export SCALE DURATION CLIENTS DROP QUICK ROUNDS WALKS SEED TORTURE_JOBS T WORKLOADS SECTIONS CPUS
export LONG LIMITS_MB LIMITS_ROUNDS WARM_SIZES WARM_T WARM_ROUNDS RESTARTS OUTAGE_SIZES OUTAGE_T OUTAGE_ROUNDS FAILOVER_GB FAILOVER_T FAILOVER_ROUNDS HOTSET_GB HOTSET_T HOTSET_ROUNDS FIRST_GB FIRST_ROUNDS ANALYTICS_GB ANALYTICS_ROUNDS
export SIZES STARTS HUGE_PAGES CRASH_WAL CRASHES CRASH_SCALE WAL_ROUNDS IMAGE_MB IMAGE_ROUNDS
export LOOKUPS_GB LOOKUPS_ROUNDS LOOKUPS_T LOOKUPS_SESSIONS LOOKUPS LOOKUPS_MANY LOOKUPS_SERVERS HUGETLBFS
export CLIENTS_LIST ROW_LIST SEGMENT_LIST METHODS PCACHE_WAL_ROUNDS PCACHE_WAL_SEED
export PG_CONFIG DESTDIR COPT
export JOBS PATCH_FUZZ PCACHE_USER TESTS PREFIX MODE POOL_DIR FORCE SUITE EXTRA_SOURCES REVISION VERSION SUITES DEBFULLNAME DEBEMAIL

ifeq ($(shell id -u),0)
RUN := tools/as-user
ROOT_DEPS := deps
ROOT_DEPS_DOCS := deps-docs
endif

.DEFAULT_GOAL := all

# Where nothing can be built in the clone, make goes on in a copy of it.
# bash, because programs cannot be run on some mounts.
ELSEWHERE :=
ifneq ($(filter-out help deps deps-docs deps-demo deps-check,$(or $(MAKECMDGOALS),all)),)
ELSEWHERE := $(shell bash tools/copy)
ifneq ($(.SHELLSTATUS),0)
$(error nothing can be built here)
endif
endif

ifneq ($(ELSEWHERE),)
.PHONY: elsewhere $(MAKECMDGOALS)
$(or $(MAKECMDGOALS),all): elsewhere
	@:
elsewhere:
	+@bash tools/copy --make $(MAKECMDGOALS)
else

.PHONY: all help deps deps-demo deps-check deps-docs fetch tree build docs vanilla deb deb-hotset deb-module rpm image image-server repo install dist port release demo demo-server bench bench-report bench-wal
.PHONY: check check-server check-abi check-series check-fuzz check-wal-suites check-torture check-stress check-walk check-differential check-pg-suites check-powercut check-mutants check-world check-ndctl-setup check-systemd check-pool-attack check-fresh check-deb check-repo check-vm check-lint check-warnings check-places check-dist check-meson check-patroni check-containers check-outside check-image check-clones check-monitoring check-unit check-module check-tap check-regress check-regress-short check-hotset installcheck
.PHONY: module install-module installcheck-module compile_commands.json
.PHONY: upstream refresh-patches clean-tree clean distclean

all: build ## fetch, verify, patch, build, install into build/pgsql (as root: deps first)

help: ## this text
	@awk -F ':.*## ' '/^[a-z_.-]+:.*## / {printf "  %-21s %s\n", $$1, $$2}' Makefile
	@printf '%s\n' '' 'Variables:' \
	'  PGSRC=PATH           PostgreSQL 18 source tree or tarball, instead of Debian'"'"'s' \
	'  PG_SUITES="..."      Debian suites to look in ("forky sid"); FETCH=latest looks for newer' \
	'  PG_MIRROR=URI        Debian archive to fetch from, instead of the one apt uses' \
	'  PG_CONFIGURE_EXTRA   more options for configure' \
	'  WITH_LIBPMEM=no      leave a library out; also WITH_LIBNDCTL, WITH_LIBXXHASH' \
	'  JOBS=N               parallel jobs (all processors)' \
	'  TESTS="..."          check-tap: these test files only' \
	'  MODE=...             check-regress: persistent_cache_mode (planned_restart)' \
	'  KEY=NAME             repo: the key that signs, in your GNUPGHOME or in a file' \
	'  PCACHE_USER=NAME     the user to build and test as when root runs make (pcache)' \
	'  CCACHE_DIR=DIR       where ccache keeps its files' \
	'  PG_CONFIG=FILE       module, demo, check: pg_config of the unpatched server' \
	'  SERVER=FILE          check-torture, -walk, -differential, -regress, -outside: pg_config of an unpatched one'

deps: ## install the Debian packages needed (normal user: say what is missing)
	@tools/deps

deps-demo: ## install the Debian packages that "make demo" needs, but for the server (normal user: say what is missing)
	@tools/deps demo

deps-check: ## the same for "make check"
	@tools/deps check

deps-docs: ## install the Debian packages that "make docs" needs (normal user: say what is missing)
	@tools/deps docs

fetch: $(ROOT_DEPS) ## PostgreSQL's source, verified, into build/download
	@tools/fetch-postgres

tree: fetch ## the patched work tree build/postgres
	@$(RUN) tools/prepare-tree postgres

build: tree ## the same as all
	@$(RUN) tools/build-tree postgres

module: ## the library for an unpatched server 15 to 18, and pg_pcache, into build/module/MAJOR; PG_CONFIG=/usr/lib/postgresql/17/bin/pg_config
	@$(RUN) tools/build-module "$(PG_CONFIG)"

install-module: ## the same, installed by you into that server; PG_CONFIG=, DESTDIR=
	@tools/install-module "$(PG_CONFIG)"

installcheck-module: ## tests of the library that is installed; PG_CONFIG=, TESTS="..." selects
	@$(RUN) tests/run-module --installed "$(PG_CONFIG)" $(TESTS)

compile_commands.json: ## for clangd, as it is for a stock server; PG_CONFIG=
	@tools/compile-commands $(PG_CONFIG) >$@.new && mv $@.new $@

docs: $(ROOT_DEPS_DOCS) tree ## the documentation of PostgreSQL with the cache: HTML and man pages, in build/docs
	@$(RUN) tools/build-docs

deb: ## Debian packages of the server with the cache, in build/deb; SUITE=trixie (root): built in a chroot of that release; EXTRA_SOURCES=FILE
	@tools/build-deb $(SUITE)

deb-hotset: ## Debian packages of pg_hotset for servers without the cache, in build/deb-hotset; SUITE= as for deb
	@tools/build-deb --hotset $(SUITE)

deb-module: ## Debian packages of the library for unpatched servers, with pg_pcache, in build/deb-module; SUITE=bookworm, or another, as for deb
	@tools/build-deb --module $(SUITE)

rpm: ## an RPM package of the library for an unpatched server, with pg_pcache, in build/rpm; PG_CONFIG=
	@tools/build-rpm "$(PG_CONFIG)"

image: ## an image for containers, of Debian's server and the package in build/deb-module, in build/image; SUITE=trixie
	@tools/build-image $(SUITE)

image-server: ## the same of the server with the cache, of the packages in build/deb, in build/image-server; SUITE=trixie
	@tools/build-image --server $(SUITE)

repo: ## an apt repository of build/deb, build/deb-hotset and build/deb-module, in build/repo; KEY=NAME (of gpg) or KEY=FILE signs it
	@tools/build-repo

install: fetch ## a release build, installed by you into PREFIX=/opt/pgsql; FORCE=1: although there is something else
	@tools/install

dist: ## the committed source as build/postgresql-pcache-VERSION.tar.xz
	@$(RUN) tools/dist

port: ## tries the series with another minor release: VERSION=18.7; PGSRC=
	@tools/port

release: all vanilla ## what is published of the committed version, in build/releases: tarball, source packages, SBOM, reports, notes, SHA256SUMS
	@$(RUN) tools/release

vanilla: fetch ## PostgreSQL without the patches, into build/pgsql-vanilla
	@$(RUN) tools/prepare-tree vanilla
	@$(RUN) tools/build-tree vanilla

demo: deps-demo ## three ways to restart a stock server, and a kill, compared; as root Debian's is installed if there is none; PG_CONFIG= for another one
	@PG_CONFIG=$$(tools/stock-server) && PG_CONFIG=$$PG_CONFIG tools/demo/run

demo-server: all ## the same with the patched server
	@PG_CONFIG= tools/demo/run

bench: all vanilla ## measurements against unpatched PostgreSQL; SECTIONS="failover lookups" selects, QUICK=1, LONG=1
	@tools/bench/run

bench-report: ## the second part of docs/benchmarks.md, of what make bench has measured
	@tools/bench/report

bench-wal: all ## wal_sync_method = pmem against fdatasync; see tools/bench/wal
	@$(RUN) tools/bench/wal

# A warning of the compiler is an error.  What was not run is said at the end.
check: deps-check ## the library on a stock server: lint, packaging, unit, its tests, short rounds of torture; plans of ndctl-setup; as root Debian's server is installed if there is none; PG_CONFIG= for another one
	@PG_CONFIG=$$(tools/stock-server) && export PG_CONFIG && rc=0 && \
	COPT=-Werror tools/check lint packaging unit-stock module-stock torture-stock-short ndctl-setup-plans || rc=$$?; \
	echo 'left out, for "make check-server" has it: other majors, the patched server, fuzzing, power cuts, QEMU guests, images, hostile users'; \
	exit $$rc

check-server: all vanilla ## the patched server, the library on an unpatched 18, and what takes longer: warnings, places in PostgreSQL, lists of mutants, unit, a short round of fuzzing, stock extensions, TAP, a short regression run, pg_hotset in short, short rounds of torture with kills and with power cuts, a QEMU guest, the known walks, statements on several servers, a build with meson, the entrypoint of the image; as root: a bare machine, hostile users, clones in other places
	@tools/check lint-tree warnings places mutants-check unit fuzz ndctl-setup-rest systemd monitoring ndctl-setup-attack pool-attack build-as-root clones dist repo fresh image-short abi-short module-short tap regress-short hotset-short torture-short torture-stock-short torture-whole-short vm-smoke meson -- walk-short differential-short

check-world: all vanilla ## the long forms of most of check, with PostgreSQL's own suites, 200 rounds of torture, 60 walks, both on an unpatched server as well, power cuts, statements on several servers; without check-vm, check-wal-suites and check-mutants
	@tools/check lint warnings places mutants-check unit fuzz ndctl-setup systemd monitoring ndctl-setup-attack pool-attack build-as-root clones dist-full repo-full deb deb-hotset deb-module deb-setup image abi module tap regress regress-stock regress-off hotset vm-smoke -- series pg-suites patroni -- torture meson containers outside -- walk differential fresh-full fresh-trixie -- torture-stock walk-stock -- torture-whole torture-stock-whole

check-series: all ## does each patch compile on top of those before it, and pass the unit tests?
	@$(RUN) tools/check-series

check-lint: ## shellcheck over all scripts, the layers of the shared sources, the documentation, pgindent (tools/indent mends)
	@$(RUN) tools/check-lint

check-warnings: all ## our C files and the patched ones of the server, compiled with the flags of Debian's packages: no warning
	@$(RUN) tests/warnings/run

check-places: vanilla ## does PostgreSQL change files or pages past the buffer manager or WAL anywhere but where it is known?
	@$(RUN) tests/places/run

check-meson: all ## the tree built with meson: the same sources, unit tests, a warm restart
	@$(RUN) tests/run-meson

check-patroni: all ## three members under Patroni and etcd: restarts, switchover, failover with pg_rewind; PATRONI=, MODE=
	@$(RUN) tests/patroni/run || [ $$? -eq 77 ]

check-containers: all ## the server as the first process of a container (bubblewrap): volumes, modes, stops and kills
	@$(RUN) tests/containers/run || [ $$? -eq 77 ]

check-outside: all ## workloads that others wrote, over kept pages: sysbench, sqlsmith, a linearizability checker, a framework's tests; DURATION=, SEED=, WORKLOADS="sqlsmith" selects; SERVER=PG_CONFIG for an unpatched server
	@tests/outside/run $(if $(SERVER),--server='$(SERVER)') $(WORKLOADS) || [ $$? -eq 77 ]

check-image: ## the image of "make image" as a container: new clusters, secrets, stops, kills, owners; is the cache warm? SERVER=--server: that of "make image-server"
	@tests/image/run $(SERVER) || [ $$? -eq 77 ]

check-clones: ## clones in places of all kinds (root): make finds a way in each, or says why there is none; FULL=--full: builds and suites in each
	@tests/clones/run $(FULL) || [ $$? -eq 77 ]

check-monitoring: all ## what is in docs/monitoring/, with a server and the programs that read it: queries, rules, alerts, lines of the log
	@$(RUN) tests/monitoring/run

check-unit: all ## CMocka tests
	@$(RUN) tests/run-unit

check-fuzz: all ## pool files that were tampered with, for server code and pg_pcache; RUNS=, SEED=
	@RUNS="$${RUNS:-1000000}" $(RUN) tests/fuzz/run

check-tap: all vanilla ## TAP tests; TESTS="tests/tap/t/001*.pl" selects
	@$(RUN) tests/run-tap $(TESTS)

check-module: vanilla ## the library on unpatched servers: build/pgsql-vanilla, and those that are installed; TESTS="tests/module/t/001*.pl" selects
	@$(RUN) tests/run-module $(TESTS)

check-ndctl-setup: ## plans and refusals of tools/ndctl-setup on captured machines; as root: a hostile server's user; PARTS="plans" selects
	@$(RUN) tests/ndctl-setup/run $(PARTS)
	@[ -n "$(PARTS)" ] || tests/ndctl-setup/attack || [ $$? -eq 77 ]

check-systemd: ## does systemd understand the unit that keeps the cache over a reboot?
	@$(RUN) tests/systemd/run || [ $$? -eq 77 ]

check-pool-attack: all ## another local user against the pool of a server (root)
	@tests/pool-attack/run || [ $$? -eq 77 ]

check-fresh: fetch ## a bare Debian in a chroot (root): packages, configure; FULL=--full: demo and unit tests, too; RELEASE=
	@tests/fresh/run $(FULL) $(RELEASE)

check-deb: ## the packages of "make deb" in a chroot (root): over the stock server, warm, back, purged; REGRESS=--regress; HOTSET=--hotset: those of "make deb-hotset"; MODULE=--module: those of "make deb-module", or MODULE=--setup; SUITE=
	@tests/deb/run $(SUITE) $(REGRESS) $(HOTSET) $(MODULE) || [ $$? -eq 77 ]

check-repo: ## the repository of "make repo" as apt sees it, what keeps our server, and what tells of updates; FULL=--full (root): in a chroot
	@tests/repo/run $(FULL) || [ $$? -eq 77 ]

check-dist: fetch ## the tarball of "make dist" without git, and what "make install" refuses; FULL=--full: a release build, moved and restarted warm
	@$(RUN) tests/dist/run $(FULL)

check-abi: all vanilla ## extensions that were compiled for unpatched PostgreSQL, in mode always
	@$(RUN) tests/abi/run

check-vm: all ## persistent memory in a QEMU guest (slow); SCENARIOS="fsdax mirror" selects
	@tests/vm/run $(SCENARIOS)

check-torture: all ## random DDL, random kills, recovered with and without the pool, and the same with power cuts; ROUNDS=, SEED=; SERVER=PG_CONFIG for an unpatched server
	@tests/torture/run $(if $(SERVER),--server='$(SERVER)')
	@tests/torture/run $(if $(SERVER),--server='$(SERVER)') --whole

check-stress: all ## torture for 30 minutes with 16 MB of shared buffers and many sessions: evictions, temporary tables, restarts with half of them; DURATION=, SEED=; finds most in a build with PG_CONFIGURE_EXTRA=--enable-cassert
	@DURATION="$${DURATION:-1800}" tests/torture/run --set stress=1 --set shared_buffers=16MB --set fewer=1 --set cycles=2 --set duration=16

check-walk: all vanilla ## random walks over what may happen to clusters, each start judged by a copy; ROUNDS=, SEED=; SERVER=PG_CONFIG for an unpatched server
	@tests/torture/walk --known --random $(if $(SERVER),--server='$(SERVER)',--steer)

check-differential: all vanilla ## the same statements and faults on the unpatched server, with and without the library, and on the patched one, the same answers; ROUNDS=, SEED=; SERVER=PG_CONFIG for another unpatched one, and not the patched one
	@tests/torture/differential $(if $(SERVER),--server='$(SERVER)')

check-powercut: all ## torture with power cuts only, which take what was not flushed or synced; ROUNDS=, SEED=
	@tests/torture/run --whole

check-mutants: all ## does the power cut torture bite? ROUNDS= per mutant, at most
	@tests/powercut/mutants

check-pg-suites: all ## PostgreSQL's recovery, pg_rewind, subscription, amcheck, mode always
	@$(RUN) tests/run-pg-suites

check-wal-suites: all ## PostgreSQL's recovery suite with wal_sync_method = pmem
	@$(RUN) tests/run-suites-pmem

check-regress: all ## PostgreSQL's regress and isolation suites with the cache on; MODE=; SERVER=PG_CONFIG for an unpatched server
	@$(RUN) tests/run-regress $(if $(SERVER),--server='$(SERVER)')

check-regress-short: all ## some of PostgreSQL's regress suite with the cache on
	@$(RUN) tests/run-regress --short

check-hotset: all vanilla ## contrib/pg_hotset, for the patched and the unpatched server; TESTS="contrib/pg_hotset/t/..." selects
	@$(RUN) tests/run-hotset $(TESTS)

installcheck: all vanilla ## TAP and short regression run against the installation in PREFIX
	@test -x "$(PREFIX)/bin/postgres" || { echo 'usage: make installcheck PREFIX=/where/it/is/installed' >&2; exit 1; }
	@tools/check tap regress-short

upstream: tree ## what docs/upstream.md offers to PostgreSQL, as git format-patch has it, in build/upstream
	@$(RUN) tools/upstream

refresh-patches: ## regenerate patches/18 from the commits in build/postgres
	@tools/refresh-patches

# As the user whom build/ belongs to, as everything there.
clean-tree: ## remove build/postgres, local edits and commits in it too
	@[ ! -d build ] || $(RUN) sh -c 'rm -rf build/postgres build/postgres.*'

clean: ## remove all but the downloaded source
	@[ ! -d build ] || $(RUN) find build -mindepth 1 -maxdepth 1 ! -name download -exec rm -rf {} +

distclean: ## remove build/, and the copy of the clone, where there is one
	@[ ! -d build ] || { $(RUN) find build -mindepth 1 -delete && rmdir build; }

endif
