#!/bin/bash
# Shared by the scripts in tools/ and tests/: paths, messages, locks.
# Source it; it does nothing on its own.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=$ROOT/build
# The series are applied from, and regenerated into, the directories below this
# one, in this order.  "base" is what the others need, which do not know each other.
# shellcheck disable=SC2034
PATCHES=$ROOT/patches/18
SERIES=(base cache io)
# shellcheck disable=SC2034
JOBS=${JOBS:-$(nproc)}
# The one way to run a command as another user, also for ndctl-setup, which is
# installed without the rest.
# shellcheck disable=SC2034
RUN_AS=$ROOT/tools/ndctl-setup/lib/run-as

# Suites make programs in temporary directories, and /tmp may be mounted noexec.
case ,$(findmnt -n -o OPTIONS -T "${TMPDIR:-/tmp}" 2>/dev/null || true), in *,noexec,*) export TMPDIR=/var/tmp ;; esac

say() { printf '==> %s\n' "$*"; }
warn() { printf '%s: warning: %s\n' "${0##*/}" "$*" >&2; }

# die MESSAGE [HINT]...
die() {
	printf '%s: error: %s\n' "${0##*/}" "$1" >&2
	shift
	[ $# -eq 0 ] || printf 'hint: %s\n' "$@" >&2
	exit 1
}

# skip WHY...: end a test that cannot be run here
skip() { printf 'skipped: %s\n' "$*" && exit 77; }

# skip_suite NAME WHY...: the same for a suite, which says that it has counted nothing
skip_suite() {
	printf '%s: 0 passed, 0 failed\n' "$1"
	shift
	skip "$@"
}

# build_user: who builds and tests if root runs make; is made when there is none
build_user() {
	local user=${PCACHE_USER:-pcache}
	if ! getent passwd "$user" >/dev/null; then
		say "creating the system user $user" >&2
		useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$user"
	fi
	[ "$(id -u "$user")" -ne 0 ] || die "PCACHE_USER=$user is root" "name an unprivileged user"
	echo "$user"
}

# as_unprivileged ARGUMENT...: a script that works in build/ goes on as the user
# whom build/ belongs to.  Call it first, with the script's arguments.
# as_unprivileged_online: the same, for what downloads.
as_unprivileged() { [ "$(id -u)" -ne 0 ] || exec "$ROOT/tools/as-user" "$0" "$@"; }
as_unprivileged_online() { [ "$(id -u)" -ne 0 ] || exec "$ROOT/tools/as-user" --proxy "$0" "$@"; }

# as_container_user ARGUMENT...: the same as as_unprivileged_online, for a script whose
# user namespaces have many users.  Root gives their IDs to the user who builds.
as_container_user() {
	local user first
	if [ "$(id -u)" -eq 0 ]; then
		user=$("$ROOT/tools/as-user" id -un)
		if ! grep -qs "^$user:" /etc/subuid || ! grep -qs "^$user:" /etc/subgid; then
			first=$(cat /etc/subuid /etc/subgid 2>/dev/null | awk -F : '{e = $2 + $3} e > m {m = e} END {print (m > 100000 ? m : 100000)}')
			say "user $user gets the subordinate IDs $first to $((first + 65535))"
			usermod --add-subuids "$first-$((first + 65535))" --add-subgids "$first-$((first + 65535))" "$user"
		fi
	fi
	as_unprivileged_online "$@"
}

# container_user: can this user make such a namespace?  need_container_user: or die
container_user() { unshare --user --map-auto --map-root-user true 2>/dev/null; }
need_container_user() {
	container_user || die "user $(id -un) cannot make a user namespace with several users" \
		"as root: apt-get install uidmap, and usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
}

# apt_get ARGUMENT...: packages are signed, whatever apt's configuration says of the default.
apt_get() {
	apt-get -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false \
		-o Acquire::AllowWeakRepositories=false -o Acquire::AllowDowngradeToInsecureRepositories=false "$@"
}
apt_update() { apt_get update -q </dev/null || warn "apt-get update failed; trying with the lists at hand"; }
# apt_install [OPTION]... PACKAGE...: without a question, and without what they recommend
apt_install() { DEBIAN_FRONTEND=noninteractive apt_get install -y -q --no-install-recommends "$@" </dev/null; }

# warn_expired LISTS: say which archive's Release in this directory of apt's has expired.
# apt is silent where Acquire::Check-Valid-Until is off, and what is newer is missing then.
warn_expired() {
	local file until
	for file in "$1"/*Release; do
		[ -r "$file" ] || continue
		until=$(sed -n '/^Valid-Until: */ {s///p; q}' "$file")
		[ -n "$until" ] || continue
		until=$(date -u -d "$until" '+%s %F' 2>/dev/null) || continue
		[ "${until% *}" -ge "$(date +%s)" ] ||
			warn "${file##*/} expired on ${until#* }, so the archive may lack newer releases, also of security fixes"
	done
}

# How apt reaches its archives here, as a configuration for another release's apt
apt_acquire() {
	apt-config dump | grep -E '^Acquire::' |
		grep -vE '^Acquire::(Languages|CompressionTypes|IndexTargets|Changelogs|Send-URI-Encoded|AllowInsecure|AllowWeak|AllowDowngrade)' || true
}

# The archives this system uses for Debian itself (not for security or other updates), or PG_MIRROR.
debian_mirrors() {
	if [ -n "${PG_MIRROR:-}" ]; then
		echo "$PG_MIRROR"
		return
	fi
	# shellcheck disable=SC2016
	apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 2>/dev/null |
		awk -v own="$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}")" '
			$3 == "main" && $1 !~ /^cdrom:/ && $2 ~ ("^(" (own ? own "|" : "") "bookworm|trixie|forky|stable|testing|unstable|sid)$") &&
			!seen[$1]++ {print $1}'
}

# The archives of Debian's security updates that this system uses
debian_security_mirrors() {
	# shellcheck disable=SC2016
	apt-get indextargets --no-release-info --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 2>/dev/null |
		awk '$3 == "main" && $1 ~ /^https?:/ && $2 ~ /^[a-z]+-security$/ && !seen[$1]++ {print $1}'
}

# The file with the keys of Debian's archive
debian_keyring() {
	local file
	for file in /usr/share/keyrings/debian-archive-keyring.{gpg,pgp}; do
		[ ! -r "$file" ] || { echo "$file" && return; }
	done
	return 1
}

# git as the scripts use it: no personal settings, and a repository that
# belongs to somebody else (the checkout is root's, the build is not) is fine.
# Not for root, who would run what the other one's configuration names: root
# looks at the checkout itself only.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
# No background gc either: it would hold our lock.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
[ "$(id -u)" -ne 0 ] || GIT_CONFIG_VALUE_0=$ROOT
export GIT_CONFIG_KEY_1=gc.auto GIT_CONFIG_VALUE_1=0
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

# lock NAME: one run at a time per tree; released when the process ends.
lock() {
	[ "$(id -u)" -ne 0 ] || die "root takes no lock in build/"
	mkdir -p "$BUILD"
	exec 9>>"$BUILD/.lock-$1"
	if ! flock -n 9; then
		say "waiting for another run that uses build/$1"
		flock 9
	fi
}

# The patches of all series, in order, with their directory.
read_series() {
	local s
	for s in "${SERIES[@]}"; do
		[ ! -e "$PATCHES/$s/series" ] || sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "$PATCHES/$s/series" | awk -v s="$s" '{print s "/" $1}'
	done
}

# overlay_of SERIES: of the repository's own files on standard input those that the
# series needs.  base and io list theirs; the rest is the cache's.
overlay_of() {
	if [ "$1" = cache ]; then
		grep -vxFf "$PATCHES/base/overlay" | grep -vxFf "$PATCHES/io/overlay"
	else
		grep -xFf "$PATCHES/$1/overlay"
	fi
}

# A checksum of all series and their patches.
series_checksum() {
	local p
	{
		for p in $(read_series); do
			printf 'patch %s\n' "$p"
			cat "$PATCHES/$p" || die "the series name patches/18/$p, which does not exist"
		done
	} | sha256sum | cut -d ' ' -f 1
}

# dsc_files DSC: SHA256, size and name of each file of a Debian source package
dsc_files() { awk '/^Checksums-Sha256:/ {on = 1; next} /^[^ ]/ {on = 0} on {print $1, $2, $3}' "$1"; }

# tracked_files PATHSPEC...: what is in the repository or about to be added to it.
# In an unpacked tarball (make dist) that is all there is but build/.
tracked_files() {
	if [ -e "$ROOT/.git" ]; then
		git -C "$ROOT" ls-files -co --exclude-standard -- "$@" | sort -u
	else
		(cd "$ROOT" && find "$@" -path ./build -prune -o \( -type f -o -type l \) -print 2>/dev/null | sed 's,^\./,,' | sort)
	fi | while IFS= read -r f; do [ ! -e "$ROOT/$f" ] || printf '%s\n' "$f"; done
}

# What the programs and packages are made of.
packaged=(VERSION LICENSE CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md contrib doc docs packaging patches src
	tools/build-deb tools/check-updates tools/ndctl-setup)

# our_version [--committed]: the number in VERSION for the commit with that tag; for
# another one with its date and hash behind, and for changes that are not committed
# with a checksum, unless --committed is given.
our_version() {
	local version changed=''
	version=$(cat "$ROOT/VERSION")
	if [ -e "$ROOT/.git" ]; then
		[ "${1:-}" = --committed ] || changed=$(cd "$ROOT" && git diff HEAD -- "${packaged[@]}" && git ls-files -z -o --exclude-standard -- "${packaged[@]}" | xargs -0r sha256sum)
		if [ -n "$changed" ] || ! git -C "$ROOT" describe --exact-match --tags --match "v$version" HEAD >/dev/null 2>&1; then
			version+=+git$(TZ=UTC git -C "$ROOT" log -1 --abbrev=7 --date=format-local:%Y%m%d --format=%cd.%h HEAD)
		fi
		[ -z "$changed" ] || version+=.$(sha256sum <<<"$changed" | cut -c 1-8)
	fi
	echo "$version"
}

# shm_dir NAME MEGABYTES: prints a new directory on /dev/shm with that much room.
shm_dir() {
	local size free enough
	[ -w /dev/shm ] || die "/dev/shm is missing or not writable for $(id -un)" \
		"as root: mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
	read -r size free < <(df -Pm /dev/shm | awk 'NR == 2 {print $2, $4}')
	enough=$(((size - free + $2) / 1024 + 1))G
	[ "$free" -ge "$2" ] || die "/dev/shm has $free MB left, $2 MB are needed" \
		"remove old files there, or enlarge it: mount -o remount,size=$enough /dev/shm (docker run --shm-size=${enough,})"
	mktemp -d "/dev/shm/$1.XXXXXX"
}

# Remove the System V shared memory segments of servers that were killed and are
# gone.  Each start leaves one behind if its data directory is removed, and the
# kernel has room for 4096.  A server that is started again does not need the one
# it had.
remove_orphaned_segments() {
	local id creator attached uid me
	me=$(id -u)
	while read -r _ id _ _ creator _ attached uid _; do
		if [ "$uid" = "$me" ] && [ "$attached" = 0 ] && [ ! -e "/proc/$creator" ]; then
			ipcrm -m "$id" 2>/dev/null || true
		fi
	done < <(tail -n +2 /proc/sysvipc/shm 2>/dev/null)
}

# ---------------------------------------------------------------- what suites need

# need_server BIN [HINT], need_vanilla, need_pg_regress: or die
need_server() { [ -x "$1/postgres" ] || die "no server in $1" "${2:-run make first}"; }
need_vanilla() { [ -x "$BUILD/pgsql-vanilla/bin/postgres" ] || die "no unpatched server in build/pgsql-vanilla" "run make vanilla"; }
need_pg_regress() { [ -x "$1/src/test/regress/pg_regress" ] || die "${1#"$ROOT"/} is not built" "run make first"; }

# has_libpmem BIN: can this server's pool be on persistent memory?
has_libpmem() { grep -q pmem_flush "$1/postgres" || { [ -e "$1/pg_pcache" ] && grep -q pmem_flush "$1/pg_pcache"; }; }

# has_cache BIN: does this server load the library by itself, and know its settings?
has_cache() { grep -q persistent_cache_mode "$1/postgres"; }

# clean_environment: nothing of the caller's settings reaches PostgreSQL's programs,
# but for what is meant for its test suites.
clean_environment() {
	local v
	for v in ${!PG*}; do case $v in PG_TEST_* | PGCTLTIMEOUT | PG_CONFIG) ;; *) unset "$v" ;; esac done
	unset LANGUAGE LC_ALL
	export LC_MESSAGES=C
	# as long as the tests wait for anything else; pg_ctl's own minute is short on a
	# machine on which many suites run
	export PGCTLTIMEOUT=${PGCTLTIMEOUT:-${PG_TEST_TIMEOUT_DEFAULT:-180}}
}

# suite_environment PREFIX: what PostgreSQL's own "prove_installcheck" sets, for the
# server that is installed in PREFIX; sets pg to PostgreSQL's tree.  The caller adds
# TESTLOGDIR and TESTDATADIR.
suite_environment() {
	local prefix=$1
	pg=$BUILD/postgres
	need_server "$prefix/bin"
	need_pg_regress "$pg"
	clean_environment
	export PGPORT=65432 top_builddir=$pg
	export enable_injection_points=yes with_ssl=openssl with_icu=yes
	export PG_REGRESS=$pg/src/test/regress/pg_regress REGRESS_SHLIB=$pg/src/test/regress/regress.so
	export PERL5LIB=$pg/src/test/perl${PERL5LIB:+:$PERL5LIB}
	share_contrib_dir=$("$prefix/bin/pg_config" --sharedir)/extension
	PATH=$prefix/bin:$pg/src/test/regress:$PATH
	export share_contrib_dir PATH
}

# library_path PREFIX: the programs that are installed there take their own libpq
library_path() {
	LD_LIBRARY_PATH=$("$1/bin/pg_config" --libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
}

# run_initdb BIN LOG OPTION...: make a cluster; its output goes to LOG, and is shown if it fails
run_initdb() {
	local bin=$1 log=$2
	shift 2
	"$bin/initdb" -A trust --no-sync --no-instructions "$@" >"$log" 2>&1 || {
		cat "$log" >&2
		die "initdb failed"
	}
}

# initdb_template BIN DIR: the cluster that PostgreSQL's TAP tests copy instead of
# running initdb, so all of theirs have one system identifier
initdb_template() {
	run_initdb "$1" "$2/initdb.log" --lc-messages=C --no-clean -D "$2/initdb-template"
	export INITDB_TEMPLATE=$2/initdb-template
}

# build_module NAME DIR PREFIX [TARGET]: build tests/modules/NAME in DIR for the
# server in PREFIX, and install it there unless TARGET says something else
build_module() {
	local module=$ROOT/tests/modules/$1
	mkdir -p "$2"
	make -s -C "$2" -f "$module/Makefile" VPATH="$module" PG_CONFIG="$3/bin/pg_config" "${4:-install}" >"$2.log" 2>&1 || {
		cat "$2.log"
		die "could not build tests/modules/$1"
	}
}

# build_powercut DIR: the power cut shim
build_powercut() { make -s -C "$ROOT/tests/powercut" OUT="$1" || die "could not build tests/powercut"; }

# module_server PG_CONFIG: sets major to that of a server that the library can be built for, or dies
module_server() {
	local usage="make module PG_CONFIG=/usr/lib/postgresql/17/bin/pg_config"
	[ -n "$1" ] || die "PG_CONFIG is not set" "$usage"
	[ -x "$1" ] || die "PG_CONFIG=$1 is no program" "$usage"
	major=$("$1" --version 2>/dev/null | sed -nE 's/^PostgreSQL ([0-9]+).*/\1/p' || true)
	case $major in
	15 | 16 | 17 | 18) ;;
	*) die "the library knows PostgreSQL 15 to 18, and this is $("$1" --version)" ;;
	esac
	[ -r "$("$1" --pgxs)" ] || die "extensions cannot be built for $("$1" --version)" "as root: apt-get install postgresql-server-dev-$major"
	# One that is only there to build for, as in a chroot, may lack the server.
	[ ! -x "$("$1" --bindir)/postgres" ] || ! has_cache "$("$1" --bindir)" ||
		die "$("$1" --version) comes with the library"
}

# copy_server PG_CONFIG DIR: copy a server below DIR, with the paths that it has, and install
# the library there; sets bin to the programs of the copy
copy_server() {
	local pg_config=$1 copy=$2 dir
	for dir in --bindir --pkglibdir --sharedir; do
		dir=$("$pg_config" "$dir")
		mkdir -p "$copy${dir%/*}"
		cp -a --reflink=auto "$dir" "$copy$dir"
	done
	DESTDIR=$copy "$ROOT/tools/install-module" "$pg_config" >"$copy/build.log" 2>&1 || {
		cat "$copy/build.log"
		die "could not build the library for $("$pg_config" --version)"
	}
	bin=$copy$("$pg_config" --bindir)
}

# copy_tested_server PG_CONFIG DIR: a copy of the server that torture and walks test, so that
# a build may go on meanwhile: of the unpatched one with the library (copy_server), or, if
# PG_CONFIG is empty, of the patched one.  Sets bin to its programs.
copy_tested_server() {
	if [ -n "$1" ]; then
		module_server "$1"
		copy_server "$1" "$2"
		return
	fi
	bin=${PG_BIN:-${PREFIX:-$BUILD/pgsql}/bin}
	need_server "$bin" "run make first, or set PG_BIN"
	cp -a "$bin/.." "$2"
	bin=$2/bin
}

# Milliseconds, of which only differences say something.
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# machine_lacks LOG: one line that says what the machine had too little of when the suite
# failed that has written LOG, and how to get it; nothing if its end names nothing of the
# kind.  Tests provoke some of these messages, so it is a hint, and quotes the message.
# That there is no room for WAL is not believed at all: whoever fills a disk is told of other
# files as well.
machine_lacks() {
	local end pattern what
	end=$(tail -n 400 "$1" | LC_ALL=C tr -cd '\11\12\40-\176' | grep -vE '^ok |pg_wal/.*No space left on device' || true)
	while IFS='|' read -r what pattern; do
		pattern=$(grep -m 1 -oE ".{0,80}($pattern).{0,80}" <<<"$end") || continue
		# shellcheck disable=SC2001 # any program
		printf 'the machine: %s: "%s"\n' "${what//NAME/$(sed -E "s/^(.*[ :'\"])?([^ :'\"]+)['\"]?: (command )?not found.*/\2/" <<<"$pattern")}" "$(sed 's/^ *//' <<<"$pattern")"
		return
	done <<'END'
no room for System V shared memory or semaphores (ipcs -u; ipcrm what nobody uses; sysctl kernel.shmmni)|shmget|semget
/dev/shm is too small (mount -o remount,size=2G /dev/shm; docker run --shm-size=2g)|/dev/shm has [0-9]+ MB left|/dev/shm.*(No space left on device|Bus error)|shared memory.*No space left on device
no room on a disk (df -h, df -i; make clean removes what is built)|No space left on device|Disk quota exceeded
not enough memory (free -m; JOBS=1 compiles less at a time; TORTURE_JOBS=1)|Cannot allocate memory|[Oo]ut of memory|virtual memory exhausted|Killed signal terminated program|MB of memory, [0-9]+ MB are free
no more processes (ulimit -u; cat /sys/fs/cgroup/pids.max; docker run --pids-limit)|fork(: retry|ed)?[^|]*Resource temporarily unavailable|[Cc]annot fork|could not fork
no more open files (ulimit -n; sysctl fs.file-max)|Too many open files
the program NAME is missing (make deps, as root; or apt-get install what has it)|[^ ]+: command not found|sh: [0-9]+: [^ ]+: not found
no network to a package archive (the proxy and the DNS of apt)|Temporary failure (in name resolution|resolving)|Could not resolve|Network is unreachable
END
}

# ---------------------------------------------------------------- what suites have counted

# Each of these prints two numbers, passed and failed.

# sum_results NAME FILE...: of all lines "NAME: N passed, N failed"
sum_results() {
	local name=$1
	shift
	sed -nE "s/^$name: ([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p" "$@" | awk '{p += $1; f += $2} END {print p + 0, f + 0}'
}

# regress_results FILE...: of the TAP lines of pg_regress, one for each test script
regress_results() {
	awk '/^ok [0-9]+/ {p++} /^not ok [0-9]+/ {f++} END {print p + 0, f + 0}' "$@"
}

# prove_results FILE RC: of prove's summary, and its exit status.  A file that ended
# badly without a failed subtest counts as one failure, and so does a bad end as such.
prove_results() {
	awk -v rc="$2" '
		/^Files=[0-9]+, Tests=/ { split($2, a, /[=,]/); tests = a[2] }
		/\(Wstat: / {
			wstat = $0; sub(/.*\(Wstat: /, "", wstat); n = $0; sub(/.*Failed: /, "", n)
			n += 0; failed += n; bad += (n > 0 ? n : (wstat + 0 != 0))
		}
		/^  Parse errors:/ { parse++ }
		END { if (!bad) bad = parse; if (!bad && rc != 0) bad = 1; print tests - failed, bad + 0 }' "$1"
}

# tell_failures PROVE_LOG TESTLOGDIR KEPT: of a run of prove that has failed, what the
# failing tests and their servers said last, and where all of it is kept
tell_failures() {
	local name l
	sed -nE 's|^(.*/)?([^/ ]+)\.pl +\(Wstat: .*|\2|p' "$1" |
		while IFS= read -r name; do
			for l in "$2/regress_log_$name" "$2/${name}"_*.log; do
				[ ! -e "$l" ] || printf '\n----- last lines of %s -----\n%s\n' "${l##*/}" "$(tail -n 60 "$l")"
			done
		done || true
	echo "kept: ${3#"$ROOT"/}"
	# where only the end of the output is kept, it has to say what failed
	awk '/^# +Failed test/ { n = 12 } n-- > 0 || /\(Wstat: |^Bail ?out/' "$1" | tail -n 40
}
