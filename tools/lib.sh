#!/bin/bash
# Shared by the scripts in tools/ and tests/: paths, messages, locks.
# Source it; it does nothing on its own.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=$ROOT/build
# The series is applied from, and regenerated into, this directory.
# shellcheck disable=SC2034
PATCHES=$ROOT/patches/18
# shellcheck disable=SC2034
JOBS=${JOBS:-$(nproc)}

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

# as_unprivileged ARGUMENT...: a script that works in build/ goes on as the user
# whom build/ belongs to.  Call it first, with the script's arguments.
as_unprivileged() { [ "$(id -u)" -ne 0 ] || exec "$ROOT/tools/as-user" "$0" "$@"; }

# apt_get ARGUMENT...: packages are signed, whatever apt's configuration says of the default.
apt_get() {
	apt-get -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false \
		-o Acquire::AllowWeakRepositories=false -o Acquire::AllowDowngradeToInsecureRepositories=false "$@"
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

# The file names in the series, in order.
read_series() {
	[ ! -e "$PATCHES/series" ] || sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' "$PATCHES/series" | awk '{print $1}'
}

# A checksum of the series and all its patches.
series_checksum() {
	local p
	{
		for p in $(read_series); do
			printf 'patch %s\n' "$p"
			cat "$PATCHES/$p" || die "patches/18/series names $p, which does not exist"
		done
	} | sha256sum | cut -d ' ' -f 1
}

# tracked_files PATHSPEC...: what is in the repository or about to be added to it.
tracked_files() {
	if git -C "$ROOT" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$ROOT" ls-files -co --exclude-standard -- "$@" | sort -u
	else
		(cd "$ROOT" && find "$@" -path ./build -prune -o \( -type f -o -type l \) -print 2>/dev/null | sed 's,^\./,,' | sort)
	fi | while IFS= read -r f; do [ ! -e "$ROOT/$f" ] || printf '%s\n' "$f"; done
}

# shm_dir NAME MEGABYTES: prints a new directory on /dev/shm with that much room.
shm_dir() {
	local free
	[ -w /dev/shm ] || die "/dev/shm is missing or not writable for $(id -un)" \
		"as root: mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
	free=$(df -Pm /dev/shm | awk 'NR == 2 {print $4}')
	[ "$free" -ge "$2" ] || die "/dev/shm has $free MB left, $2 MB are needed" \
		"remove old files there, or enlarge it: mount -o remount,size=2G /dev/shm (docker run --shm-size=2g)"
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
